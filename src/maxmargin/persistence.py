"""Save and load fitted models without pickle.

A model file is a safetensors file: all arrays as tensors, and in its header one JSON document
that says which estimator it is, what its parameters are and where each array belongs. Reading
it builds objects of the classes in `maxmargin.io.allowed` and of no others, and runs no code from the file.

A hash over document and arrays finds damage. It does not prove who made the file; that a file
was made with ill intent is met by holding everything it says to what its classes declare
(`maxmargin.io.checked`) before it is used.
"""

from maxmargin.io.checked import SKOPS_TRUSTED, ModelFileError
from maxmargin.io.model_file import describe, load, save

__all__ = ["SKOPS_TRUSTED", "ModelFileError", "describe", "load", "save"]
