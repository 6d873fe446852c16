"""Rules: who goes next."""
from functools import cache
from kilowait.engine import entry
from kilowait.engine.compiling import signed_kernel
from kilowait.engine.ports import Rule
from kilowait.engine.preparing import Settings
from kilowait.engine.simulator import replay
from kilowait.policies import priority
from kilowait.errors import UnknownNameError

@cache
def rule(name):
    t={f.__name__:(f,False) for f in priority.FIXED}|{f.__name__:(f,True) for f in priority.MOVING}
    if name not in t: raise UnknownNameError("policy",name,t)
    f,m=t[name]
    return Rule(name,signed_kernel(f,entry.SCORE),moving=m)

def simulate(jobs,cluster,policy="fcfs",backfill="none",*,backfill_order=None,**kw):
    return replay(jobs,cluster,rule(policy),Settings(backfill=backfill,**kw),rule(backfill_order) if backfill_order else None)
