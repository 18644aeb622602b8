"""Real processes under real faults: clients that record histories, a hand that disturbs, and the checker as judge."""
