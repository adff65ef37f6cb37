//! CUDA sources and their variants. A source is text embedded in the crate; a variant fixes its element types `T0`, `T1`, .. and a
//! number `VARIANT`, by `#define`s put before the text. NVRTC compiles a variant when it is first launched.

use crate::DType;

/// Text that every source starts with.
const COMMON: &str = include_str!("../../cuda/common.cuh");

/// A CUDA source of this crate.
pub(crate) struct Source {
    /// Names it in errors, files and the cache.
    pub name: &'static str,
    /// Its text, in pieces that follow one another after `common.cuh`.
    pub texts: &'static [&'static str],
    /// Whether the compiler may contract `a * b + c` into a fused multiply-add.
    pub fmad: bool,
}

/// Which specialisation of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Variant {
    /// Element types, 4 bits each from the lowest, 0 for none.
    types: u32,
    /// What `VARIANT` is defined as.
    id: u32,
}

impl Variant {
    /// Up to eight element types and a number that the source gives a meaning.
    pub const fn new(types: &[DType], id: u32) -> Variant {
        let mut packed = 0;
        let mut i = 0;
        while i < types.len() {
            packed |= (types[i] as u32 + 1) << (4 * i);
            i += 1;
        }
        Variant { types: packed, id }
    }
    /// Element types alone.
    pub const fn types(types: &[DType]) -> Variant {
        Variant::new(types, 0)
    }
    /// The element types.
    fn dtypes(self) -> impl Iterator<Item = DType> {
        (0..8).map_while(move |i| ((self.types >> (4 * i)) & 15).checked_sub(1).map(|t| DType::ALL[t as usize]))
    }
    /// As `f32_f16_3`.
    fn label(self) -> String {
        self.dtypes().map(|t| t.name().to_owned()).chain([self.id.to_string()]).collect::<Vec<_>>().join("_")
    }
    /// The `#define`s.
    fn defines(self) -> String {
        let types: String = self.dtypes().enumerate().map(|(i, t)| format!("#define T{i} {}\n", t.name())).collect();
        format!("{types}#define VARIANT {}\n", self.id)
    }
}

impl Source {
    /// The name of a variant.
    pub fn title(&self, variant: Variant) -> String {
        format!("{}_{}", self.name, variant.label())
    }
    /// The whole text of a variant; `generated` follows the source's own text.
    pub fn text(&self, variant: Variant, generated: &str) -> String {
        [&variant.defines(), COMMON]
            .into_iter()
            .chain(self.texts.iter().copied())
            .chain([generated])
            .collect::<Vec<_>>()
            .join("\n")
    }
    /// Compiler options, all but the architecture.
    pub fn options(&self) -> Vec<String> {
        ["--std=c++17", "--device-as-default-execution-space", if self.fmad { "--fmad=true" } else { "--fmad=false" }]
            .map(str::to_owned)
            .to_vec()
    }
    /// A variant as [`all_sources`] lists it.
    pub fn listed(&self, variant: Variant, generated: &str) -> SourceText {
        (self.title(variant), self.text(variant, generated), self.options())
    }
}

/// Name, whole text and compiler options of a CUDA source.
pub type SourceText = (String, String, Vec<String>);

/// Every CUDA source of this crate in every variant, for checking offline that all of them compile. Each family lists its own in a
/// function `sources`.
pub fn all_sources() -> Vec<SourceText> {
    let families: [fn() -> Vec<SourceText>; 13] = [
        crate::elementwise::sources,
        crate::copy::sources,
        crate::compare::sources,
        crate::random::sources,
        crate::softmax::sources,
        crate::norm::sources,
        crate::cross_entropy::sources,
        crate::index::sources,
        crate::scatter::sources,
        crate::reduce::sources,
        crate::scan::sources,
        crate::sort::sources,
        crate::optim::sources,
    ];
    families.into_iter().flat_map(|family| family()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_its_own_name() {
        let mut names: Vec<String> = all_sources().into_iter().map(|(name, ..)| name).collect();
        names.sort();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    #[test]
    fn a_variant_defines_its_types() {
        let source = Source { name: "sum", texts: &["body"], fmad: false };
        let variant = Variant::new(&[DType::F16, DType::U8], 5);
        assert_eq!(source.title(variant), "sum_f16_u8_5");
        assert!(source.text(variant, "end").starts_with("#define T0 f16\n#define T1 u8\n#define VARIANT 5\n"));
        assert!(source.text(variant, "end").ends_with("body\nend"));
    }
}
