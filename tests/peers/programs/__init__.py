"""Client libraries as programs: each takes `produce|consume|member JSON` and prints JSON lines.

The Java and Node peers in peers/ speak the same way, so that a test drives all of them alike. They
run in processes of their own, as applications do; `member` runs until standard input closes.
"""
