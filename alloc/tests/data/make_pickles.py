"""Writes the pickles beside this file: one snapshot at each protocol, and two of older forms.

Run with any Python 3; `python2.pickle` needs a Python 2 and the argument `old`.
"""
import os
import pickle
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
A, B, C, D = 0x7F0000000000, 0x7F1000000000, 0x7F2000000000, 0x7F3000000000


def snapshot():
    f = [
        {"name": u"forward", "filename": u"/home/us\u00e9r/model.py", "line": 17},
        {"name": u"main", "filename": u"train.py", "line": 70000},
    ]
    stack, none = [f[0], f[1]], []

    def entry(action, addr, size, time, stream=0, frames=none, **more):
        where = "device_free" if action == "oom" else "addr"
        return dict({"action": action, where: addr, "size": size, "stream": stream, "time_us": time, "frames": frames}, **more)

    def block(address, size, requested, state, frames=none):
        return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}

    def segment(address, total, allocated, active, requested, stream, kind, expandable, blocks):
        return {
            "device": 0, "address": address, "total_size": total, "allocated_size": allocated, "active_size": active,
            "requested_size": requested, "stream": stream, "segment_type": kind, "segment_pool_id": (0, 0),
            "is_expandable": expandable, "frames": none, "blocks": blocks,
        }

    return {
        "segments": [
            segment(A, 20 * MIB, 10 * MIB, 14 * MIB, 14000000, 0, "large", False, [
                block(A, 10 * MIB, 10000000, "active_allocated", stack),
                block(A + 10 * MIB, 4 * MIB, 4000000, "active_pending_free", stack),
                block(A + 14 * MIB, 6 * MIB, 0, "inactive"),
            ]),
            segment(B, 2 * MIB, 512, 512, 100, 94000000000007, "small", False, [
                block(B, 512, 100, "active_allocated"),
                block(B + 512, 2 * MIB - 512, 0, "inactive"),
            ]),
            segment(C, 4 * MIB, 0, 0, 0, 0, "large", True, [block(C, 4 * MIB, 3000000, "inactive")]),
        ],
        "device_traces": [
            [
                entry("free_requested", A, 5000000, 1700000000000000),
                entry("free_completed", A, 5000000, 1700000000000001),
                entry("alloc", A, 10000000, 1700000000000002, frames=stack, category="parameters"),
                entry("segment_map", C, 2 * MIB, 3),
                entry("segment_map", C + 2 * MIB, 2 * MIB, 4),
                entry("alloc", C, 3000000, 5, category="unknown"),
                entry("alloc", A + 10 * MIB, 4000000, 6, frames=stack),
                entry("free_requested", C, 3000000, 7),
                entry("free_completed", C, 3000000, 8),
                entry("free_requested", A + 10 * MIB, 4000000, 9),
                entry("oom", 12345, 1 << 40, 10),
                entry("segment_alloc", D, 2 * MIB, 11, stream=-1),
                entry("segment_free", D, 2 * MIB, 12, stream=-1),
                entry("segment_unmap", C + 4 * MIB, 2 * MIB, 13),
                entry("snapshot", 0, 0, 14),
            ],
            [],
        ],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.25,
            "expandable_segments": True, "roundup_power2_divisions": {"1": 0, "2": 0}, "nothing": None,
            "kinds": [1, (2, 3, 4, 5), False],
        },
        "external_annotations": [{"name": "step", "stage": "START", "device": 0, "time_us": 5}],
    }


def old_segments():
    """A bare list, blocks without addresses, with the history of their owners."""
    owner = {"addr": A, "real_size": 1000000, "frames": [{"name": "f", "filename": "a.py", "line": 1}]}
    blocks = [
        {"size": MIB, "state": "active_allocated", "history": [owner]},
        {"size": 512, "state": "active_awaiting_free"},
        {"size": MIB - 512, "state": "inactive"},
    ]
    return [{"device": 0, "address": A, "total_size": 2 * MIB, "stream": 0, "segment_type": "small", "blocks": blocks}]


def write(name, value, protocol):
    with open(os.path.join(HERE, name), "wb") as file:
        pickle.dump(value, file, protocol)


if sys.argv[1:] == ["old"]:
    write("python2.pickle", old_segments(), 2)
else:
    for protocol in (2, 3, 4, 5):
        write("protocol%d.pickle" % protocol, snapshot(), protocol)
