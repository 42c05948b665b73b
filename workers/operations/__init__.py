"""For operators: doctor, metrics, Flower, playbooks, archiving, rollback."""
