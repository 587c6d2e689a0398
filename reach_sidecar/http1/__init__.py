"""HTTP/1.1 on asyncio.Protocol: heads by httptools, framing and limits by hand."""
