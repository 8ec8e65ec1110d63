//! The font of pictures.

/// The name under which pictures ask for the font. [`register`] must have been called.
pub const FONT: &str = "sans-serif";

/// Makes the font known to plotters, where plotters measures text: with the feature `font`, which
/// some other program that is compiled at the same time may want. Then a picture that is drawn
/// without it is an error of plotters.
pub fn register() {
    #[cfg(feature = "font")]
    measured();
}

#[cfg(feature = "font")]
fn measured() {
    use plotters::style::{FontStyle, register_font};

    static FONTS: std::sync::Once = std::sync::Once::new();
    FONTS.call_once(|| {
        // The font is a constant of a crate. If it were damaged, drawing would say so.
        let _ = register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
    });
}
