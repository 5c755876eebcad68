"""Models for other runtimes: ONNX."""
