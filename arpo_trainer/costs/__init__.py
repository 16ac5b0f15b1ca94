"""What a run will cost, before it is started (`arpo train --recipe NAME --dry-run`); what it has cost, afterwards."""
