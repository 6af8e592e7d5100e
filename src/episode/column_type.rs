//! Which Parquet columns can be read, and as what. Only Parquet's own types count, not the schema that
//! another program may keep beside them, so that categories and large text are plain text here.

use polars_parquet::parquet::schema::Repetition;
use polars_parquet::parquet::schema::types::{
    IntegerType, ParquetType, PhysicalType, PrimitiveConvertedType as Converted,
    PrimitiveLogicalType as Logical, PrimitiveType,
};

/// A column as it is decoded.
#[derive(Debug, Clone)]
pub(crate) struct Plain {
    /// The column under a type that the reader has.
    pub field: ParquetType,
    /// Of decimals: the digits after the point. Decoded are whole numbers, or their bytes.
    pub scale: Option<usize>,
}

/// How a column is read; the error is the name of a type that has no plain values.
pub(crate) fn plain(field: &ParquetType) -> Result<Plain, String> {
    let of = match field {
        ParquetType::PrimitiveType(of) if of.field_info.repetition != Repetition::Repeated => of,
        ParquetType::PrimitiveType(_) => return Err("List".into()),
        ParquetType::GroupType { logical_type, converted_type, .. } => {
            return Err(match (logical_type, converted_type) {
                (Some(kind), _) => format!("{kind:?}"),
                (None, Some(kind)) => format!("{kind:?}"),
                (None, None) => "Struct".into(),
            });
        }
    };
    let bare = |logical| {
        let field = PrimitiveType { logical_type: logical, converted_type: None, ..of.clone() };
        Plain { field: ParquetType::PrimitiveType(field), scale: None }
    };
    let as_it_is = Plain { field: field.clone(), scale: None };
    let kind = (&of.logical_type, &of.converted_type);
    let decimal = match kind {
        (Some(Logical::Decimal(_, scale)), _) | (None, Some(Converted::Decimal(_, scale))) => Some(*scale),
        _ => None,
    };
    match (of.physical_type, decimal) {
        (PhysicalType::Int32 | PhysicalType::Int64, Some(_)) => Ok(Plain { scale: decimal, ..bare(None) }),
        (PhysicalType::FixedLenByteArray(1..=16), Some(_)) => Ok(Plain { scale: decimal, ..bare(None) }),
        (PhysicalType::Int32 | PhysicalType::Int64, None) => match kind {
            (Some(Logical::Integer(IntegerType::UInt32 | IntegerType::UInt64)), _)
            | (None, Some(Converted::Uint32 | Converted::Uint64)) => Ok(as_it_is),
            // Smaller ones are stored in 32 bits anyway; of an unknown type all values are null.
            (Some(Logical::Integer(_) | Logical::Unknown) | None, None)
            | (Some(Logical::Integer(_)), Some(_))
            | (
                None,
                Some(
                    Converted::Int8
                    | Converted::Int16
                    | Converted::Int32
                    | Converted::Int64
                    | Converted::Uint8
                    | Converted::Uint16,
                ),
            ) => Ok(bare(None)),
            _ => Err(name(of)),
        },
        (PhysicalType::ByteArray, None) => match kind {
            (Some(Logical::String | Logical::Enum | Logical::Json | Logical::Unknown), _)
            | (None, Some(Converted::Utf8 | Converted::Enum | Converted::Json)) => {
                Ok(bare(Some(Logical::String)))
            }
            _ => Err(name(of)),
        },
        (PhysicalType::Boolean | PhysicalType::Float | PhysicalType::Double, None) => Ok(as_it_is),
        _ => Err(name(of)),
    }
}

fn name(of: &PrimitiveType) -> String {
    match (&of.logical_type, &of.converted_type) {
        (Some(Logical::Decimal(digits, scale)), _) | (None, Some(Converted::Decimal(digits, scale))) => {
            format!("Decimal({digits}, {scale})")
        }
        (Some(Logical::Timestamp { .. }), _)
        | (None, Some(Converted::TimestampMillis | Converted::TimestampMicros)) => "Timestamp".into(),
        (Some(Logical::Time { .. }), _) | (None, Some(Converted::TimeMillis | Converted::TimeMicros)) => {
            "Time".into()
        }
        (Some(kind), _) => format!("{kind:?}"),
        (None, Some(kind)) => format!("{kind:?}"),
        (None, None) => match of.physical_type {
            PhysicalType::Int96 => "Timestamp".into(),
            PhysicalType::ByteArray | PhysicalType::FixedLenByteArray(_) => "Binary".into(),
            other => format!("{other:?}"),
        },
    }
}

/// A decimal as text, exact: `units` over 10 to the power of `scale`.
pub(crate) fn decimal(units: i128, scale: usize) -> String {
    let digits = format!("{:0>width$}", units.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if units < 0 { "-" } else { "" };
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// Units of a decimal from their bytes, the greatest first.
pub(crate) fn units(bytes: &[u8]) -> i128 {
    let start = if bytes.first().is_some_and(|b| b & 0x80 != 0) { -1 } else { 0 };
    bytes.iter().fold(start, |units: i128, b| units << 8 | i128::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_text() {
        assert_eq!(decimal(25, 2), "0.25");
        assert_eq!(decimal(-125, 2), "-1.25");
        assert_eq!(decimal(7, 0), "7");
        assert_eq!(decimal(100, 2), "1.00");
        assert_eq!(units(&[0, 25]), 25);
        assert_eq!(units(&[0xff, 0x83]), -125);
        assert_eq!(units(&[0xff; 16]), -1);
    }

    #[test]
    fn types_are_named() {
        let of = |physical, logical| {
            let field =
                PrimitiveType { logical_type: logical, ..PrimitiveType::from_physical("x".into(), physical) };
            plain(&ParquetType::PrimitiveType(field)).map(|p| p.scale)
        };
        assert_eq!(of(PhysicalType::Int32, Some(Logical::Date)), Err("Date".into()));
        assert_eq!(of(PhysicalType::Int96, None), Err("Timestamp".into()));
        assert_eq!(of(PhysicalType::ByteArray, None), Err("Binary".into()));
        assert_eq!(of(PhysicalType::ByteArray, Some(Logical::String)), Ok(None));
        assert_eq!(of(PhysicalType::Int64, Some(Logical::Decimal(12, 2))), Ok(Some(2)));
        let wide = of(PhysicalType::FixedLenByteArray(17), Some(Logical::Decimal(40, 2)));
        assert_eq!(wide, Err("Decimal(40, 2)".into()));
        for narrow in [IntegerType::Int8, IntegerType::UInt16, IntegerType::Int64, IntegerType::UInt64] {
            assert_eq!(of(PhysicalType::Int32, Some(Logical::Integer(narrow))), Ok(None));
        }
    }
}
