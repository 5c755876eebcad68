"""Save and load fitted models without pickle.

A model file is a safetensors file: arrays are tensors, and its header holds one JSON document with the class
of the estimator, its parameters and the position of each array. Loading builds objects of the classes listed
in `maxmargin.io.checked` only, and runs no code from the file.

A hash over document and arrays detects damage. It does not prove who made the file. Against files made with
ill intent, everything is checked against the declarations of its classes before it is used.
"""

from maxmargin.io.checked import SKOPS_TRUSTED, ModelFileError
from maxmargin.io.model_file import describe, load, save

__all__ = ["SKOPS_TRUSTED", "ModelFileError", "describe", "load", "save"]
