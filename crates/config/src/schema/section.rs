//! One list of the keys of a section, for everything that needs it.

/// Defines a section of the configuration: its keys with the shapes of their values (`KEYS`), which the check and the
/// JSON Schema use, and the type that it is read into.
///
/// A key without a field is checked, but not read. `plus` adds fields that are not keys.
macro_rules! section {
    (
        $(#[$meta:meta])*
        $name:ident {
            $( $key:tt: $shape:expr $( => { $(#[$doc:meta])* $field:ident: $type:ty } )? ),* $(,)?
        }
        $( plus { $( $(#[$plus_meta:meta])* $plus:ident: $plus_type:ty ),* $(,)? } )?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Default, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $( $( $(#[$doc])* #[serde(rename = $key)] pub $field: $type, )? )*
            $( $( $(#[$plus_meta])* pub $plus: $plus_type, )* )?
        }

        impl $name {
            /// The keys, and the shapes of their values.
            pub(crate) const KEYS: &'static [$crate::schema::Field] = &[$( ($key, $shape) ),*];
        }
    };
}

pub(crate) use section;
