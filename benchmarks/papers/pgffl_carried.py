"""Does a policy that learnt elsewhere make Case I fairer, where PG-FFL's policy learns nothing?

    fedjax-fair reproduce pgffl-carried [--quick]

The policies that ``pgffl-trained`` trains on the five clients of Cases II and III weigh the ten of 100 clients that
take part in Case I's rounds: a policy looks at one client at a time, and knows neither how many there are nor who.
Judged on the ten held-out federations of Case I, other clients than any policy has seen, of other images.
"""

from pathlib import Path

import fedjax_fair as ff
from benchmarks.papers import pgffl_trained as trained

NAME = "pgffl-carried"
CASE = "Case I"


def run(quick: bool, out: Path) -> None:
    """Train where ``pgffl-trained`` has not, then judge; what was interrupted goes on. The quick form: Case II."""
    replicates, rounds = (2, 6) if quick else (10, 50)
    cases = ("Case II", "Case III")[: 1 if quick else None]
    place = out / f"{trained.NAME}.parts"
    policies = {f"policy of {case}": trained.policy_of(case, quick, rounds, place) for case in cases}
    rules = {"FedAvg": ff.fedavg("uniform")} | {name: ff.pg_ffl(policy=policy) for name, policy in policies.items()}
    found = trained.compared(CASE, rules, replicates, rounds, out / f"{NAME}.parts")
    print(found.table(), flush=True)
    rewards = {name: policy.rewards.tolist() for name, policy in policies.items()}
    trained.keep(out, NAME, quick, replicates, rounds, {CASE: found}, rewards=rewards)
