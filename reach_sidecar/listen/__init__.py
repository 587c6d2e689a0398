"""The listeners: which port accepts what."""
