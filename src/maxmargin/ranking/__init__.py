"""Online label ranking (Shalev-Shwartz, Singer 2007)."""
