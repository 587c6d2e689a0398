"""What any script does: urllib, which takes its proxy from the environment."""

import sys
import urllib.request

request = urllib.request.Request(sys.argv[1], b'{"task": "from urllib"}', {"Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=20) as answer:
    print(answer.read().decode())
