"""Seconds of search by network until it is nearly as fast as the search makes it."""
