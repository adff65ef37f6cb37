//! NumPy's files.

use crate::support::{cases, layouts, read, tensor};
use kiln::{DType, Device, Error, Result, Tensor};
use std::path::PathBuf;

cases![arrays_survive_a_round_trip, fortran_order_becomes_a_view, what_cannot_be_read_is_an_error];

/// A file of its own for each case, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("kiln-{}-{name}.npy", std::process::id())))
    }
    fn write(&self, header: &str, data: &[u8]) {
        let length = (header.len() as u16).to_le_bytes();
        std::fs::write(&self.0, [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat())
            .expect("a file is written");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn arrays_survive_a_round_trip(d: &Device) -> Result<()> {
    let file = Scratch::new("round-trip");
    for dtype in DType::ALL.into_iter().filter(|t| *t != DType::BF16) {
        for x in layouts(&tensor(&[0., 1., 2., 3., 4., 5.], (2, 3), dtype, d)?)? {
            x.save_npy(&file.0)?;
            let y = Tensor::load_npy(&file.0, d)?;
            assert_eq!((y.dims(), y.dtype(), y.device()), (x.dims(), dtype, d));
            assert_eq!(read(&y)?, read(&x)?, "{dtype}");
        }
    }
    for shape in [&[][..], &[1], &[0, 4], &[1; 8]] {
        Tensor::ones(shape, DType::F32, d)?.save_npy(&file.0)?;
        assert_eq!(Tensor::load_npy(&file.0, d)?.dims(), shape);
        let bytes = std::fs::read(&file.0).expect("the file is there");
        assert_eq!(bytes.len() % 64, 4 * shape.iter().product::<usize>());
    }
    Ok(())
}

fn fortran_order_becomes_a_view(d: &Device) -> Result<()> {
    let file = Scratch::new("fortran");
    file.write("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n", &[0, 3, 1, 4, 2, 5]);
    let x = Tensor::load_npy(&file.0, d)?;
    assert_eq!(x.to_vec2::<u8>()?, [[0, 1, 2], [3, 4, 5]]);
    assert!(!x.is_contiguous());
    Ok(())
}

fn what_cannot_be_read_is_an_error(d: &Device) -> Result<()> {
    let file = Scratch::new("wrong");
    for (header, data, why) in [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1000, 1000), }", 4, "takes 4000000 bytes, the file has 4"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 8, "takes 4 bytes, the file has 8"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", 4, "larger than any device"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1), }", 4, "9 dims"),
        ("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", 4, ">f4"),
    ] {
        file.write(header, &vec![0; data]);
        let e = Tensor::load_npy(&file.0, d).expect_err(header).to_string();
        assert!(e.contains(why) && e.contains("wrong"), "{e}");
    }
    let bf16 = Tensor::ones(1, DType::BF16, d)?;
    assert!(matches!(bf16.save_npy(&file.0), Err(Error::DType { .. })));
    let dry = Tensor::ones(1, DType::F32, &Device::dry_run("1GiB")?)?;
    assert!(matches!(dry.save_npy(&file.0), Err(Error::DryRun { op: "save_npy" })));
    assert!(matches!(Tensor::load_npy("/nowhere/at/all.npy", d), Err(Error::File { .. })));
    Ok(())
}
