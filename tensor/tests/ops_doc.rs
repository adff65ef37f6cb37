//! `docs/OPS.md` lists the ops that there are, and says of elementwise ops what their table says.

use kiln_kernels::elementwise::{Row, rows};
use kiln_tensor::{DType, Device, Result, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Files that hold ops: one each, and what makes tensors or changes them.
fn sources() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let entries = std::fs::read_dir(folder.join("ops")).unwrap();
    let ops = entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "rs"));
    ops.chain(["in_place.rs", "create.rs"].map(|name| folder.join(name))).collect()
}

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("")
}

/// Public methods of `Tensor` in a file: in `impl Tensor`, in a list such as `unary! { .. exp = "exp"; .. }`, or named by the call of a macro that
/// makes such methods, as in `extrema!(.. argmax)`.
fn ops_of(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or("");
    let makers: BTreeSet<&str> = text
        .split("macro_rules! ")
        .skip(1)
        .filter(|rest| rest.split("\n}").next().is_some_and(|body| body.contains("impl Tensor {") && body.contains("pub fn $")))
        .map(word)
        .collect();
    let (mut ops, mut block) = (BTreeSet::new(), "");
    for line in text.lines() {
        match line.strip_prefix("    ") {
            Some(inner) if block == "impl" => {
                ops.extend(inner.strip_prefix("pub fn ").map(|rest| word(rest).to_string()));
            }
            Some(inner) if block == "list" => {
                ops.extend(inner.split_once(" = ").filter(|(name, _)| word(name) == *name).map(|(name, _)| name.to_string()));
            }
            _ if line == "impl Tensor {" => block = "impl",
            _ if line.ends_with("! {") && word(line) != "macro_rules" => block = "list",
            _ if line == "}" => block = "",
            _ => {
                if let Some((_, arguments)) = line.split_once("!(").filter(|(name, _)| makers.contains(name)) {
                    let literal = |name: &&str| name.starts_with('"') || *name == "true" || *name == "false";
                    let unquoted: String = arguments.split('"').step_by(2).collect();
                    ops.extend(unquoted.split_whitespace().filter(|name| !literal(name)).map(|name| word(name).to_string()));
                }
            }
        }
    }
    ops
}

/// Rows of the lists of the document: the op, and the other cells.
fn listed() -> BTreeMap<String, Vec<String>> {
    let text = file("../docs/OPS.md");
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect::<Vec<_>>();
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = cells(line);
        let op = cells.remove(0).trim_matches('`').to_string();
        assert!(all.insert(op.clone(), cells).is_none(), "docs/OPS.md lists {op} twice");
    }
    all
}

#[test]
fn every_op_is_listed_and_every_listed_op_exists() {
    let code: BTreeSet<String> =
        sources().iter().flat_map(|path| ops_of(&read_to_string(path).unwrap())).filter(|op| !op.is_empty()).collect();
    assert!(code.contains("exp") && code.contains("matmul") && code.contains("argmax") && code.contains("add_"), "{code:?}");
    let listed: BTreeSet<String> = listed().into_keys().collect();
    let missing: Vec<_> = code.difference(&listed).collect();
    assert!(missing.is_empty(), "docs/OPS.md has no row for {missing:?}");
    let gone: Vec<_> = listed.difference(&code).collect();
    assert!(gone.is_empty(), "docs/OPS.md has rows for ops that do not exist: {gone:?}");
}

/// What the document says of an op over these rows.
fn facts(rows: &[&Row]) -> (&'static str, &'static str) {
    let types = match (rows.iter().all(|row| row.floats), rows.iter().all(|row| row.integers)) {
        (true, true) => "all",
        (true, false) => "floats",
        _ => "integers",
    };
    let gradients: Option<Vec<&str>> = rows
        .iter()
        .map(|row| row.gradient.as_ref())
        .collect::<Option<Vec<_>>>()
        .map(|g| g.iter().flat_map(|g| g.rows).copied().collect());
    let gradient = match gradients {
        None => "none",
        Some(rows) if rows.iter().all(|row| *row == "zero") => "zeros",
        Some(_) => "yes",
    };
    (types, gradient)
}

#[test]
fn elementwise_ops_are_what_the_table_says() {
    let mut named = BTreeSet::new();
    for (op, cells) in listed() {
        let [types, _, gradient, names] = &cells[..] else { continue };
        let names: Vec<&str> = names.split(", ").map(|name| name.trim_matches('`')).collect();
        let find =
            |name: &&str| *rows().iter().find(|row| row.name == *name).unwrap_or_else(|| panic!("{op}: no row is named {name}"));
        let found: Vec<&Row> = names.iter().map(find).collect();
        named.extend(found.iter().map(|row| row.name));
        // Integers have no NaN: `nan_to_num` hands them back.
        let (known, slope) = if op == "nan_to_num" { ("all", "yes") } else { facts(&found) };
        assert_eq!((types.as_str(), gradient.as_str()), (known, slope), "docs/OPS.md: {op}");
    }
    let gradients: BTreeSet<&str> = rows().iter().filter_map(|row| row.gradient.as_ref()).flat_map(|g| g.rows).copied().collect();
    let unnamed: Vec<&str> = rows()
        .iter()
        .map(|row| row.name)
        .filter(|name| !named.contains(name) && !gradients.contains(name) && !listed().contains_key(*name))
        .collect();
    assert!(unnamed.is_empty(), "docs/OPS.md names no op over the rows {unnamed:?}");
}

type Function = fn(&Tensor) -> Result<Tensor>;

/// Ops that are no rows of the table, applied to a 2 × 2 tensor of any type.
fn others() -> Vec<(&'static str, Function)> {
    vec![
        ("eq", |x| x.eq(x)),
        ("logical_and", |x| x.logical_and(x)),
        ("logical_not", |x| x.logical_not()),
        ("isnan", |x| x.isnan()),
        ("isinf", |x| x.isinf()),
        ("isfinite", |x| x.isfinite()),
        ("nonzero", |x| x.nonzero()),
        ("sum", |x| x.sum(0)),
        ("mean", |x| x.mean(0)),
        ("prod", |x| x.prod(0)),
        ("max", |x| x.max(0)),
        ("amin", |x| x.amin(0)),
        ("argmax", |x| x.argmax(0)),
        ("var", |x| x.var(0, 1.0)),
        ("std", |x| x.std(0, 1.0)),
        ("norm", |x| x.norm(2.0, 0)),
        ("logsumexp", |x| x.logsumexp(0)),
        ("any", |x| x.any(0)),
        ("count_nonzero", |x| x.count_nonzero(0)),
        ("cumsum", |x| x.cumsum(0)),
        ("cumprod", |x| x.cumprod(0)),
        ("sort", |x| Ok(x.sort(0, false)?.0)),
        ("topk", |x| Ok(x.topk(1, 0, true)?.0)),
        ("kthvalue", |x| Ok(x.kthvalue(1, 0)?.0)),
        ("argsort", |x| x.argsort(0, false)),
        ("matmul", |x| x.matmul(x)),
        ("linear", |x| x.linear(x, None)),
        ("softmax", |x| x.softmax(0)),
        ("log_softmax", |x| x.log_softmax(0)),
        ("layer_norm", |x| x.layer_norm(None, None, 1e-5)),
        ("dropout", |x| x.dropout(0.5)),
        ("mse_loss", |x| x.mse_loss(x)),
        ("reshape", |x| x.reshape(4)),
        ("t", |x| x.t()),
        ("expand", |x| x.expand((3, 2, 2))),
        ("narrow", |x| x.narrow(0, 1, 1)),
        ("diagonal", |x| x.diagonal(0, 0, 1)),
        ("unfold", |x| x.unfold(0, 2, 1)),
        ("copy", |x| x.copy()),
        ("cat", |x| Tensor::cat(&[x, x], 0)),
        ("repeat", |x| x.repeat(&[2, 2])),
        ("repeat_interleave", |x| x.repeat_interleave(2, 0)),
        ("roll", |x| x.roll(&[1], &[0])),
        ("flip", |x| x.flip(0)),
        ("diag_embed", |x| x.diag_embed(0, 0, 1)),
        ("tril", |x| x.tril(0)),
    ]
}

#[test]
fn other_ops_take_the_types_that_are_listed() -> Result<()> {
    let listed = listed();
    for (op, f) in others() {
        let [types, _, gradient] = &listed[op][..] else { panic!("docs/OPS.md: {op} has other columns") };
        for dtype in DType::ALL {
            let x = Tensor::eye(2, dtype, &Device::cpu())?;
            let result = f(&x).map(|_| ());
            assert_eq!(
                result.is_ok(),
                types == "all" || dtype.is_float(),
                "docs/OPS.md: {op} of {dtype}: {types}, but {result:?}"
            );
        }
        let x = Tensor::eye(2, DType::F32, &Device::cpu())?.requires_grad()?;
        assert_eq!(f(&x)?.tracked(), gradient == "yes", "docs/OPS.md: {op} has a gradient: {gradient}");
    }
    Ok(())
}
