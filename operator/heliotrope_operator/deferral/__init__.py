"""Starts Jobs that may wait in the cleanest hours that meet their deadlines, and answers Kueue's AdmissionChecks."""
