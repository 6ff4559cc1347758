//! Enums for fields with a fixed set of values. A document of another version of rgpu may have
//! other values: they are kept as `Other`, so that reading and writing changes nothing.

/// Defines such an enum: each variant with its text in JSON. It dereferences to that text.
macro_rules! open_enum {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$variant_attribute:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_attribute])* $variant,)+
            /// A value that this version does not know; empty if there is none.
            Other(String),
        }

        impl $name {
            /// The values that this version knows, in the order of the definition.
            pub const KNOWN: &'static [Self] = &[$(Self::$variant),+];

            /// The value as it is written in JSON.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(text) => text,
                }
            }

            /// Whether there is no value.
            pub fn is_empty(&self) -> bool {
                self.as_str().is_empty()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::Other(String::new())
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)+
                    _ => Self::Other(text.to_owned()),
                }
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::from(text.as_str())
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.as_str().to_owned()
            }
        }

        impl std::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.as_str() == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.as_str() == *other
            }
        }

        impl PartialEq<$name> for String {
            fn eq(&self, other: &$name) -> bool {
                self == other.as_str()
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer).map(Self::from)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "anyOf": [{ "enum": [$($text),+] }, { "type": "string" }] })
            }
        }
    };
}

pub(crate) use open_enum;

#[cfg(test)]
mod tests {
    open_enum! {
        pub enum Size {
            Small = "small",
            Large = "large",
        }
    }

    #[test]
    fn known_and_unknown_values_come_back_from_json_as_they_were() {
        for text in ["small", "large", "huge", ""] {
            let json = serde_json::to_string(text).unwrap();
            let size: Size = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&size).unwrap(), json);
            assert_eq!((size.as_str(), size.to_string().as_str()), (text, text));
        }
        assert_eq!(Size::from("large"), Size::Large);
        assert_eq!(Size::from("huge"), Size::Other("huge".to_owned()));
        assert_eq!(Size::KNOWN, [Size::Small, Size::Large]);
        assert!(Size::default().is_empty());
    }

    #[test]
    fn the_schema_names_the_known_values_and_allows_every_text() {
        let schema = serde_json::to_value(schemars::schema_for!(Size)).unwrap();
        assert_eq!(schema["anyOf"][0]["enum"], serde_json::json!(["small", "large"]));
        assert_eq!(schema["anyOf"][1], serde_json::json!({ "type": "string" }));
    }
}
