//! The order of the pages of a listing: a hostile store could list in circles.

/// Pages without a name that may follow each other. Stores answer with some where many objects
/// were deleted.
const MAX_EMPTY: u32 = 1000;

/// Checks that each page has greater names than the one before.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// The greatest name so far.
    greatest: String,
    /// How many pages without a name came last.
    empty: u32,
}

impl Pages {
    /// Says whether the pages before ended with this name.
    pub(crate) fn end_with(&self, name: &str) -> bool {
        self.greatest == name
    }

    /// Takes the least and the greatest name of the next page, `None` when it has none.
    ///
    /// # Errors
    ///
    /// What is wrong with the page.
    pub(crate) fn follow(&mut self, names: Option<(&str, &str)>) -> Result<(), &'static str> {
        let Some((least, greatest)) = names else {
            self.empty += 1;
            if self.empty > MAX_EMPTY {
                return Err("its pages are empty");
            }
            return Ok(());
        };
        if least <= self.greatest.as_str() {
            return Err("it lists the same names again, or not in their order");
        }
        self.empty = 0;
        greatest.clone_into(&mut self.greatest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_greater_names_than_those_before() {
        let mut pages = Pages::default();
        pages.follow(Some(("a", "b"))).expect("the first page");
        pages.follow(None).expect("an empty page");
        pages.follow(Some(("c", "c"))).expect("greater names");
        assert!(pages.end_with("c"));
        assert!(pages.follow(Some(("c", "d"))).is_err());
        assert!(pages.follow(Some(("b", "d"))).is_err());
    }

    #[test]
    fn empty_pages_come_to_an_end() {
        let mut pages = Pages::default();
        for _ in 0..MAX_EMPTY {
            pages.follow(None).expect("an empty page");
        }
        assert!(pages.follow(None).is_err());
    }
}
