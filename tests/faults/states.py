"""What a checkpoint holds, whatever its folder of shards is called. Files come from a function, so that states that are
only pretended can be asked, too.
"""
import hashlib
import json
import struct


def header_of(data):
    (n,) = struct.unpack_from("<Q", data)
    return json.loads(data[8 : 8 + n])


def state(read):
    """read(NAME): the bytes of a file of the checkpoint's folder, or None. None: there is no checkpoint. A checkpoint
    that cannot be loaded raises an error."""
    main = read("checkpoint.safetensors")
    if main is None:
        return None
    meta = header_of(main)["__metadata__"]
    if meta["heddle_checkpoint"] == "1":
        return hashlib.sha256(main).hexdigest()
    shards = []
    for s in range(int(meta["shards"])):
        data = read(f"{meta['folder']}/rank-{s}.safetensors")
        if data is None or f"{len(data)} {data[-16:].hex()}" != meta[f"shard {s}"]:
            raise ValueError(f"the manifest names {meta['folder']}, whose shard {s} is "
                             f"{'missing' if data is None else 'another'}")
        shards.append(hashlib.sha256(data).hexdigest())
    del meta["folder"]
    return json.dumps([sorted(meta.items()), shards])
