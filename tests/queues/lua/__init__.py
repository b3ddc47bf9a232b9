"""Tests of the scripts' files; what each does is tested where it is used."""
