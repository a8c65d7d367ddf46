//! The wanted ranges, and what claims parts of them.

use super::{Owner, Place};
use std::ops::Range;

/// Wanted ranges of a volume, with the places found so far.
pub(super) struct Claims {
    /// In order, without overlap.
    wanted: Vec<Range<u64>>,
    places: Vec<Place>,
}

/// `ranges` in order, without overlap or empty ones.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

impl Claims {
    /// What lies past `end` is claimed at once.
    pub(super) fn new(wanted: &[Range<u64>], end: u64) -> Self {
        let mut claims = Self { wanted: merged(wanted.to_vec()), places: Vec::new() };
        claims.claim(end..u64::MAX, |_| Owner::Behind);
        claims
    }

    /// The wanted parts of `range`.
    pub(super) fn hits(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let first = self.wanted.partition_point(|wanted| wanted.end <= range.start);
        let near = self.wanted[first..].iter().take_while(|wanted| wanted.start < range.end);
        let part = |wanted: &Range<u64>| wanted.start.max(range.start)..wanted.end.min(range.end);
        near.map(part).filter(|part| !part.is_empty()).collect()
    }

    /// Gives the wanted parts of `range` an owner. `owner` is called with each part's distance from the range's start.
    pub(super) fn claim(&mut self, range: Range<u64>, owner: impl Fn(u64) -> Owner) {
        for hit in self.hits(&range) {
            let owner = owner(hit.start - range.start);
            self.places.push(Place { range: hit, owner });
        }
    }

    /// The wanted ranges that nothing claims.
    pub(super) fn rest(&self) -> Vec<Range<u64>> {
        let claimed = merged(self.places.iter().map(|place| place.range.clone()).collect());
        let mut rest = Vec::new();
        let mut next = 0;
        for wanted in &self.wanted {
            let mut at = wanted.start;
            while claimed.get(next).is_some_and(|claim| claim.end <= at) {
                next += 1;
            }
            for claim in claimed[next..].iter().take_while(|claim| claim.start < wanted.end) {
                if at < claim.start {
                    rest.push(at..claim.start);
                }
                at = at.max(claim.end);
            }
            if at < wanted.end {
                rest.push(at..wanted.end);
            }
        }
        rest
    }

    /// All places, in order; ranges of one owner that follow each other are one.
    pub(super) fn into_places(mut self) -> Vec<Place> {
        self.places.sort_by_key(|place| (place.range.start, place.range.end));
        let mut places: Vec<Place> = Vec::new();
        for place in self.places {
            let goes_on = |last: &&mut Place| last.range.end == place.range.start && last.goes_on(&place.owner);
            if let Some(last) = places.last_mut().filter(goes_on) {
                last.range.end = place.range.end;
            } else if places.last() != Some(&place) {
                places.push(place);
            }
        }
        places
    }
}

impl Place {
    /// Whether what follows this place is a continuation if `next` has it.
    fn goes_on(&self, next: &Owner) -> bool {
        use super::Part::Content;
        match (&self.owner, next) {
            (Owner::File(file, Content(at)), Owner::File(other, Content(next))) => {
                file == other && at.checked_add(self.range.end - self.range.start) == Some(*next)
            }
            (owner, next) => owner == next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_claims_is_the_rest() {
        let mut claims = Claims::new(&[10..20, 18..30, 40..50, 90..200], 100);
        claims.claim(12..14, |_| Owner::Journal);
        claims.claim(29..45, |_| Owner::Journal);
        assert_eq!(claims.rest(), [10..12, 14..29, 45..50, 90..100]);
        claims.claim(0..100, |_| Owner::Free);
        assert_eq!(claims.rest(), []);
    }
}
