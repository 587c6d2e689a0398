"""Calls a capability twice, once each way, and prints the answers.

    reach run -- python3 examples/caller.py
"""

import json
import os
from urllib.request import Request, urlopen

job = json.dumps({"task": "world"}).encode()
headers = {"Content-Type": "application/json"}

# urllib honours http_proxy, as curl, requests and httpx do: the capability is simply a host.
with urlopen(Request("http://greet.reach/process", job, headers)) as answer:
    print(json.load(answer)["greeting"], "said", answer.headers["Reach-Agent"])

# For clients that do not (aiohttp by default, Node's fetch), the sidecar takes the capability in the path.
with urlopen(Request(os.environ["REACH_URL"] + "/to/greet/process", job, headers)) as answer:
    print(json.load(answer)["greeting"], "in trace", answer.headers["Reach-Trace-Id"])
