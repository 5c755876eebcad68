"""What every model shares: no model and no scikit-learn in here."""
