"""Work on a GPU through PyTorch; nothing here imports it before a fit asks for a device."""
