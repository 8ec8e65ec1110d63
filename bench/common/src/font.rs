//! The font of pictures, which comes with the program.

use std::sync::Once;

use plotters::style::{FontStyle, register_font};

/// The name under which pictures ask for the font. [`register`] must have been called.
pub const FONT: &str = "sans-serif";

/// Makes the font known to plotters; a picture that is drawn without it is an error of plotters.
pub fn register() {
    static FONTS: Once = Once::new();
    FONTS.call_once(|| {
        // The font is a constant of a crate. If it were damaged, drawing would say so.
        let _ = register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
    });
}
