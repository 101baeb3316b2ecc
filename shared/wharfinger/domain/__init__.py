"""Frozen values of the field and their arithmetic. No IO, no time, no chance."""
