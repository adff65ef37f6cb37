//! The pickle machine, opcode by opcode.

use kiln_alloc::snapshot::*;

/// Reads a snapshot whose only setting is made by these opcodes.
fn setting(opcodes: &[u8]) -> Result<Value, FormatError> {
    let parts: [&[u8]; 3] = [b"\x80\x04}(\x8c\x08segments]\x8c\x12allocator_settings}(\x8c\x01k", opcodes, b"uu."];
    Ok(Snapshot::read_pickle(&parts.concat())?.allocator_settings.remove(0).1)
}
fn ints(values: &[i64]) -> Vec<Value> {
    values.iter().map(|v| Value::Int(*v)).collect()
}
fn text(text: &str) -> Value {
    Value::Str(text.into())
}

#[test]
fn every_opcode_of_plain_data_is_understood() {
    let cases: &[(&[u8], Value)] = &[
        (b"N", Value::None),
        (b"\x88", Value::Bool(true)),
        (b"\x89", Value::Bool(false)),
        (b"K\xff", Value::Int(255)),
        (b"M\xff\xff", Value::Int(65535)),
        (b"J\xff\xff\xff\xff", Value::Int(-1)),
        (b"I-12345678901\n", Value::Int(-12_345_678_901)),
        (b"L12345678901L\n", Value::Int(12_345_678_901)),
        (b"\x8a\x00", Value::Int(0)),
        (b"\x8a\x01\xff", Value::Int(-1)),
        (b"\x8a\x08\0\0\0\0\0\0\0\x80", Value::Int(i64::MIN)),
        (b"\x8b\x0a\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f\0\0", Value::Int(i64::MAX)),
        (b"G\x3f\xf8\0\0\0\0\0\0", Value::Float(1.5)),
        (b"\x8c\x02hi", text("hi")),
        (b"X\x02\0\0\0hi", text("hi")),
        (b"\x8d\x02\0\0\0\0\0\0\0hi", text("hi")),
        (b"U\x02hi", text("hi")),
        (b"T\x02\0\0\0h\xff", text("h\u{fffd}")),
        (b"]K\x01a", Value::List(ints(&[1]))),
        (b"](K\x01K\x02eK\x03a", Value::List(ints(&[1, 2, 3]))),
        (b"(K\x01K\x02l", Value::List(ints(&[1, 2]))),
        (b"\x8f(K\x01\x90", Value::List(ints(&[1]))),
        (b"(K\x01\x91", Value::Tuple(ints(&[1]))),
        (b")", Value::Tuple(vec![])),
        (b"K\x01\x85", Value::Tuple(ints(&[1]))),
        (b"K\x01K\x02\x86", Value::Tuple(ints(&[1, 2]))),
        (b"K\x01K\x02K\x03\x87", Value::Tuple(ints(&[1, 2, 3]))),
        (b"(K\x01t", Value::Tuple(ints(&[1]))),
        (b"}K\x01K\x02s", Value::Dict(vec![(Value::Int(1), Value::Int(2))])),
        (b"(K\x01K\x02d", Value::Dict(vec![(Value::Int(1), Value::Int(2))])),
        (b"K\x01K\x020", Value::Int(1)),
        (b"K\x01(0", Value::Int(1)),
        (b"K\x01(K\x02K\x031", Value::Int(1)),
        (b"K\x012\x86", Value::Tuple(ints(&[1, 1]))),
        (b"K\x05\x940h\x00", Value::Int(5)),
        (b"K\x05q\x070h\x07", Value::Int(5)),
        (b"K\x05r\x07\0\0\x000j\x07\0\0\0", Value::Int(5)),
        (b"K\x05p7\n0g7\n", Value::Int(5)),
        // Bytes are no setting, but may be stepped over.
        (b"K\x05C\x01x0", Value::Int(5)),
        (b"K\x05B\x01\0\0\0x0", Value::Int(5)),
        (b"K\x05\x8e\x01\0\0\0\0\0\0\0x0", Value::Int(5)),
        (b"K\x05\x96\x01\0\0\0\0\0\0\0x0", Value::Int(5)),
        (b"\x95\x02\0\0\0\0\0\0\0K\x05", Value::Int(5)),
    ];
    for (opcodes, value) in cases {
        assert_eq!(setting(opcodes).unwrap_or_else(|e| panic!("{opcodes:x?}: {e}")), *value, "{opcodes:x?}");
    }
}

#[test]
fn every_opcode_that_makes_objects_is_refused() {
    let refused: &[(&[u8], &str)] = &[
        (b"cos\nsystem\n", "GLOBAL"),
        (b"\x8c\x02os\x8c\x06system\x93", "STACK_GLOBAL"),
        (b"NNR", "REDUCE"),
        (b"NNb", "BUILD"),
        (b"(ios\nsystem\n", "INST"),
        (b"(No", "OBJ"),
        (b"NN\x81", "NEWOBJ"),
        (b"NNN\x92", "NEWOBJ_EX"),
        (b"\x82\x01", "EXT1"),
        (b"\x83\x01\0", "EXT2"),
        (b"\x84\x01\0\0\0", "EXT4"),
        (b"P1\n", "PERSID"),
        (b"NQ", "BINPERSID"),
        (b"\x97", "NEXT_BUFFER"),
        (b"N\x98", "READONLY_BUFFER"),
    ];
    for (opcodes, name) in refused {
        let error = setting(opcodes).unwrap_err();
        assert!(
            matches!(error, FormatError::Refused { opcode, position } if opcode == *name && position >= 40),
            "{name}: {error}"
        );
    }
    assert_eq!(
        setting(b"cos\nsystem\n").unwrap_err().to_string(),
        "byte 40 of the pickle is GLOBAL, which plain data does not need and this reader refuses"
    );
}

#[test]
fn malformed_pickles_are_errors_with_their_place() {
    let cases: &[&[u8]] = &[
        b"",
        b"\x80",
        b"\x80\x01N.",
        b"\x80\x06N.",
        b"\x80\x04",
        b"\x80\x04.",
        b"\x80\x04N",
        b"\x80\x04(.",
        b"\x80\x04N(0a.",
        b"\x80\x04NNa.",
        b"\x80\x04}(Nu.",
        b"\x80\x04(Nd.",
        b"\x80\x04e.",
        b"\x80\x04N(N\x86.",
        b"\x80\x04h\x00.",
        b"\x80\x04Nr\xff\xff\xff\xff.",
        b"\x80\x04Np99999999999999\n.",
        b"\x80\x04Npx\n.",
        b"\x80\x04X\xff\xff\xff\xffabc.",
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc.",
        b"\x80\x04\x8b\xff\xff\xff\xff.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xffN.",
        b"\x80\x04Sx\n.",
        b"\x80\x04Ione\n.",
        b"\x80\x04\xff.",
        b"no pickle",
    ];
    for bytes in cases {
        let error = Snapshot::read_pickle(bytes).unwrap_err();
        assert!(matches!(error, FormatError::Pickle { .. }), "{bytes:x?}: {error}");
    }
}

#[test]
fn plain_data_that_is_no_snapshot_is_an_error_with_the_key() {
    let cases: &[(&[u8], &str)] = &[
        (b"\x80\x04N.", "the pickle is no snapshot: neither a dict nor a list"),
        (b"\x80\x04}.", "snapshot 0: `segments` is missing"),
        (b"\x80\x04]Na.", "segment 0: `segments` is no dictionary"),
        (b"\x80\x04]}a.", "segment 0: `address` is missing"),
        (b"\x80\x04]}\x8c\x07addressJ\xff\xff\xff\xffsa.", "segment 0: `address` is negative"),
        (b"\x80\x04]}\x8c\x07address\x8a\x09\0\0\0\0\0\0\0\0\x01sa.", "segment 0: `address` is an integer of more than 64 bits"),
        (b"\x80\x04]}(\x8c\x07addressK\x01\x8c\x06blocks]}aua.", "block 0: `size` is missing"),
        (b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces]]}aau.", "trace entry 0: `action` is missing"),
    ];
    for (bytes, message) in cases {
        assert_eq!(Snapshot::read_pickle(bytes).unwrap_err().to_string(), *message);
    }
    assert!(setting(b"C\x01x").is_err());
    assert!(setting(b"]\x94h\x00a").is_err(), "a list that holds itself");
}
