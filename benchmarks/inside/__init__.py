"""All of the judge that a candidate can see: the program that hosts it inside the sandbox.

These files are copied nowhere and import nothing of the rest; the sandbox shows the folder read-only. Nothing that
a process says after it has loaded a candidate is believed.
"""
