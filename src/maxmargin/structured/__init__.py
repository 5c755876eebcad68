"""Machines with one simplex per sample: multi-class, chains, latent candidates (Mohapatra et al. 2016)."""
