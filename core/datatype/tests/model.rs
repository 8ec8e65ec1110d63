//! Datatypes against a plain model: the typemap written out, with the formulas of MPI 5.0, section
//! 5.1.6.

use std::sync::Arc;

use margay_core_datatype::{Basic, Cursor, Datatype, Distribution, Order, pack, unpack};

struct Rng(fastrand::Rng);

impl Rng {
    /// Uniform in `low..=high`.
    fn range(&mut self, low: i64, high: i64) -> i64 {
        self.0.i64(low..=high)
    }

    /// A count: mostly `1..=most`, sometimes 0.
    fn count(&mut self, most: i64) -> i64 {
        if self.range(0, 15) == 0 {
            0
        } else {
            self.range(1, most)
        }
    }
}

#[derive(Clone, Default)]
struct Model {
    /// (bytes, alignment, displacement) in packed order.
    map: Vec<(i64, i64, i64)>,
    /// Ends of what it consists of, with their padding.
    ends: Vec<i64>,
    lb_markers: Vec<i64>,
    ub_markers: Vec<i64>,
}

impl Model {
    fn basic(basic: Basic) -> Model {
        let entry = |b: Basic, at: u64| (b.size() as i64, b.alignment() as i64, at as i64);
        let map = match basic.pair() {
            None => vec![entry(basic, 0)],
            Some((value, index)) => vec![entry(value, 0), entry(index, basic.index_displacement())],
        };
        Model {
            map,
            ..Model::default()
        }
    }

    fn size(&self) -> i64 {
        self.map.iter().map(|e| e.0).sum()
    }

    fn true_bounds(&self) -> (i64, i64) {
        let low = self.map.iter().map(|e| e.2).min().unwrap_or(0);
        let high = self.map.iter().map(|e| e.2 + e.0).max().unwrap_or(0);
        (low, high)
    }

    fn lb(&self) -> i64 {
        self.lb_markers
            .iter()
            .copied()
            .min()
            .unwrap_or(self.true_bounds().0)
    }

    fn ub(&self) -> i64 {
        self.ub_markers.iter().copied().max().unwrap_or_else(|| {
            let align = self.map.iter().map(|e| e.1).max().unwrap_or(1);
            let (low, high) = self.true_bounds();
            let high = self.ends.iter().copied().max().unwrap_or(high);
            let mut epsilon = 0;
            while (high - low + epsilon) % align != 0 {
                epsilon += 1;
            }
            high + epsilon
        })
    }

    fn extent(&self) -> i64 {
        self.ub() - self.lb()
    }

    /// Appends `n` copies of `child` side by side from `at`.
    fn place(&mut self, child: &Model, at: i64, n: i64) {
        for i in 0..n {
            let d = at + i * child.extent();
            self.map
                .extend(child.map.iter().map(|e| (e.0, e.1, e.2 + d)));
            if !child.map.is_empty() {
                let end = match child.ub_markers.is_empty() {
                    true => child.ub(),
                    false => child.true_bounds().1,
                };
                self.ends.push(end + d);
            }
            self.lb_markers
                .extend(child.lb_markers.iter().map(|m| m + d));
            self.ub_markers
                .extend(child.ub_markers.iter().map(|m| m + d));
        }
    }

    fn bounded(mut self, lb: i64, ub: i64) -> Model {
        (self.lb_markers, self.ub_markers) = (vec![lb], vec![ub]);
        self
    }

    /// (displacement of each packed byte) of `count` elements.
    fn bytes(&self, count: i64) -> Vec<i64> {
        let mut all = Model::default();
        all.place(self, 0, count);
        all.map.iter().flat_map(|e| e.2..e.2 + e.0).collect()
    }

    fn get_elements(&self, bytes: i64) -> Option<u64> {
        let mut left = bytes;
        let mut n = 0;
        while left > 0 && !self.map.is_empty() {
            for e in &self.map {
                if left <= 0 {
                    break;
                }
                left -= e.0;
                n += 1;
            }
        }
        (left == 0).then_some(n)
    }
}

/// One dimension of a distributed array: the indices that `coord` owns, found by asking for each.
fn dimension(old: &Model, gsize: i64, mine: impl Fn(i64) -> bool) -> Model {
    let mut model = Model::default();
    let extent = old.extent();
    for i in (0..gsize).filter(|&i| mine(i)) {
        model.place(old, i * extent, 1);
    }
    model.bounded(0, gsize * extent)
}

type Pair = (Arc<Datatype>, Model);

fn random_basic(rng: &mut Rng) -> Pair {
    let basic = Basic::ALL[rng.range(0, Basic::ALL.len() as i64 - 1) as usize];
    (Arc::new(Datatype::basic(basic)), Model::basic(basic))
}

fn random(rng: &mut Rng, depth: u32) -> Pair {
    if depth == 0 || rng.range(0, 9) == 0 {
        return random_basic(rng);
    }
    let (old, model) = random(rng, depth - 1);
    if model.map.len() > 400 {
        return (old, model);
    }
    let extent = model.extent();
    let mut new = Model::default();
    let ty = match rng.range(0, 11) {
        0 => {
            new = model;
            Ok(Datatype::dup(&old))
        }
        1 => {
            let n = rng.count(5);
            new.place(&model, 0, n);
            Datatype::contiguous(n, &old)
        }
        2 | 3 => {
            let (n, b, s) = (rng.count(4), rng.count(3), rng.range(-6, 6));
            for i in 0..n {
                new.place(&model, i * s * extent, b);
            }
            Datatype::vector(n, b, s, &old)
        }
        4 => {
            let (n, b, s) = (rng.count(4), rng.count(3), rng.range(-50, 50));
            for i in 0..n {
                new.place(&model, i * s, b);
            }
            Datatype::hvector(n, b, s, &old)
        }
        5 => {
            let n = rng.count(5);
            let lens: Vec<i64> = (0..n).map(|_| rng.count(3)).collect();
            let displs: Vec<i64> = (0..n).map(|_| rng.range(-9, 9)).collect();
            for (b, d) in lens.iter().zip(&displs) {
                new.place(&model, d * extent, *b);
            }
            Datatype::indexed(&lens, &displs, &old)
        }
        6 => {
            let n = rng.count(5);
            let lens: Vec<i64> = (0..n).map(|_| rng.count(3)).collect();
            let displs: Vec<i64> = (0..n).map(|_| rng.range(-99, 99)).collect();
            for (b, d) in lens.iter().zip(&displs) {
                new.place(&model, *d, *b);
            }
            Datatype::hindexed(&lens, &displs, &old)
        }
        7 => {
            let (n, b, bytes) = (rng.count(5), rng.count(3), rng.range(0, 1) == 1);
            // Runs of equal distance are frequent here, to exercise folding.
            let step = rng.range(-4, 4);
            let displs: Vec<i64> = (0..n)
                .map(|i| {
                    if rng.range(0, 3) == 0 {
                        rng.range(-9, 9)
                    } else {
                        i * step
                    }
                })
                .collect();
            for d in &displs {
                new.place(&model, if bytes { *d } else { d * extent }, b);
            }
            if bytes {
                Datatype::hindexed_block(b, &displs, &old)
            } else {
                Datatype::indexed_block(b, &displs, &old)
            }
        }
        8 | 9 => {
            let n = rng.count(4);
            let mut types = Vec::new();
            let mut lens = Vec::new();
            let mut displs = Vec::new();
            let mut end = 0;
            for i in 0..n {
                let (ty, child) = if i == 0 {
                    (old.clone(), model.clone())
                } else {
                    random(rng, depth.saturating_sub(2))
                };
                let (len, gap) = (rng.count(2), rng.range(0, 8));
                let at = if rng.range(0, 4) == 0 {
                    rng.range(-80, 80)
                } else {
                    end + if gap > 3 { 0 } else { gap }
                };
                new.place(&child, at, len);
                end = at + len * child.extent();
                types.push(ty);
                lens.push(len);
                displs.push(at);
            }
            Datatype::structure(&lens, &displs, &types)
        }
        10 => {
            let (lb, ext) = (rng.range(-20, 20), rng.range(-40, 80));
            new = model.bounded(lb, lb + ext);
            Datatype::resized(lb, ext, &old)
        }
        _ => return random_array(rng, old, model),
    };
    (Arc::new(ty.expect("valid arguments")), new)
}

fn random_array(rng: &mut Rng, old: Arc<Datatype>, model: Model) -> Pair {
    let n = rng.range(1, 3) as usize;
    let order = if rng.range(0, 1) == 0 {
        Order::C
    } else {
        Order::Fortran
    };
    let fastest_first: Vec<usize> = match order {
        Order::C => (0..n).rev().collect(),
        Order::Fortran => (0..n).collect(),
    };
    let sizes: Vec<i64> = (0..n).map(|_| rng.range(1, 5)).collect();
    let mut new = model;
    if rng.range(0, 1) == 0 {
        let subsizes: Vec<i64> = sizes.iter().map(|&s| rng.range(1, s)).collect();
        let starts: Vec<i64> = (0..n)
            .map(|d| rng.range(0, sizes[d] - subsizes[d]))
            .collect();
        for &d in &fastest_first {
            new = dimension(&new, sizes[d], |i| {
                i >= starts[d] && i < starts[d] + subsizes[d]
            });
        }
        let ty =
            Datatype::subarray(&sizes, &subsizes, &starts, order, &old).expect("valid arguments");
        return (Arc::new(ty), new);
    }
    let mut psizes = vec![];
    let mut distributions = vec![];
    let mut dargs = vec![];
    let mut blocks = vec![];
    for &gsize in &sizes {
        let p = rng.range(1, 3);
        let (distribution, darg, psize, block) = match rng.range(0, 4) {
            0 => (Distribution::None, None, 1, gsize),
            1 => (Distribution::Block, None, p, (gsize + p - 1) / p),
            2 => {
                let b = (gsize + p - 1) / p + rng.range(0, 1);
                (Distribution::Block, Some(b), p, b)
            }
            3 => (Distribution::Cyclic, None, p, 1),
            _ => {
                let b = rng.range(1, 3);
                (Distribution::Cyclic, Some(b), p, b)
            }
        };
        distributions.push(distribution);
        dargs.push(darg);
        psizes.push(psize);
        blocks.push(block);
    }
    let size: i64 = psizes.iter().product();
    let rank = rng.range(0, size - 1);
    let coord = |d: usize| rank / psizes[d + 1..].iter().product::<i64>() % psizes[d];
    for &d in &fastest_first {
        new = dimension(&new, sizes[d], |i| i / blocks[d] % psizes[d] == coord(d));
    }
    let ty = Datatype::darray(
        size,
        rank,
        &sizes,
        &distributions,
        &dargs,
        &psizes,
        order,
        &old,
    )
    .expect("valid arguments");
    (Arc::new(ty), new)
}

/// Checks one type; true when it was worth it (had data).
fn check(seed: u64, rng: &mut Rng, ty: &Datatype, model: &Model) -> bool {
    assert_eq!(ty.size() as i64, model.size(), "size, seed {seed}");
    assert_eq!(
        (ty.lb(), ty.ub()),
        (model.lb(), model.ub()),
        "bounds, seed {seed}: {ty:?}"
    );
    let (low, high) = model.true_bounds();
    assert_eq!(
        (ty.true_lb(), ty.true_extent()),
        (low, high - low),
        "true bounds, seed {seed}"
    );
    assert_eq!(
        ty.elements() as usize,
        model.map.len(),
        "elements, seed {seed}"
    );

    let count = rng.count(4);
    let bytes = model.bytes(count);
    let first = bytes.iter().copied().min().unwrap_or(0);
    let last = bytes.iter().copied().max().map_or(0, |b| b + 1);
    assert_eq!(
        ty.flat().span(count as u64).map_or((0, 0), |s| s),
        covering(model, count),
        "span, seed {seed}"
    );
    if ty.is_contiguous(count as u64) {
        assert!(
            bytes.windows(2).all(|w| w[1] == w[0] + 1),
            "contiguous, seed {seed}"
        );
        assert!(
            bytes.is_empty() || bytes[0] == ty.true_lb(),
            "contiguous start, seed {seed}"
        );
    } else {
        assert!(
            bytes.windows(2).any(|w| w[1] != w[0] + 1) || ty.flat().blocks() > 1,
            "missed, seed {seed}"
        );
    }

    // Pack in random fragments from a random position.
    let origin = (-first).max(0) as usize;
    let memory: Vec<u8> = (0..origin + last.max(0) as usize)
        .map(|_| rng.0.u8(..))
        .collect();
    let expected: Vec<u8> = bytes
        .iter()
        .map(|b| memory[(b + origin as i64) as usize])
        .collect();
    let mut cursor = Cursor::new(ty.flat(), count as u64);
    assert_eq!(cursor.total() as usize, expected.len());
    let start = rng.range(0, expected.len() as i64) as usize;
    cursor.seek(start as u64);
    let mut packed = expected[..start].to_vec();
    while cursor.remaining() > 0 {
        let mut fragment = vec![0; rng.range(1, 1 + expected.len() as i64 / 3) as usize];
        let n = pack(&mut cursor, &memory, origin, &mut fragment);
        assert!(
            n == fragment.len() || cursor.remaining() == 0,
            "short fragment, seed {seed}"
        );
        packed.extend_from_slice(&fragment[..n]);
        assert_eq!(cursor.position() as usize, packed.len());
    }
    assert_eq!(packed, expected, "pack, seed {seed}");
    assert_eq!(cursor.next_run(u64::MAX), None);

    // The same by pieces, in one go.
    cursor.seek(0);
    let mut by_piece = vec![];
    while let Some((at, len)) = cursor.next_piece(u64::MAX) {
        by_piece.extend(at..at + len as i64);
    }
    assert_eq!(by_piece, bytes, "pieces, seed {seed}");

    // Unpack in random fragments; where places overlap, the last byte in packed order stays.
    let packed: Vec<u8> = expected.iter().map(|_| rng.0.u8(..)).collect();
    let mut wanted = memory.clone();
    for (b, value) in bytes.iter().zip(&packed) {
        wanted[(b + origin as i64) as usize] = *value;
    }
    let mut target = memory.clone();
    let mut cursor = Cursor::new(ty.flat(), count as u64);
    let mut done = 0;
    while done < packed.len() {
        let n = (rng.range(1, 1 + packed.len() as i64 / 2) as usize).min(packed.len() - done);
        assert_eq!(
            unpack(&mut cursor, &packed[done..done + n], &mut target, origin),
            n
        );
        done += n;
    }
    assert!(target == wanted, "unpack, seed {seed}");

    for _ in 0..4 {
        let received = rng.range(0, 2 * model.size());
        let whole = model.size() > 0 && received % model.size() == 0;
        let n = if received == 0 {
            Some(0)
        } else {
            whole.then(|| (received / model.size()) as u64)
        };
        assert_eq!(
            ty.get_count(received as u64),
            n,
            "count of {received}, seed {seed}"
        );
        assert_eq!(
            ty.get_elements(received as u64),
            model.get_elements(received),
            "elements, seed {seed}"
        );
    }
    !bytes.is_empty()
}

/// The span by the true bounds of each element.
fn covering(model: &Model, count: i64) -> (i64, i64) {
    if count == 0 || model.map.is_empty() {
        return (0, 0);
    }
    let (low, high) = model.true_bounds();
    let last = (count - 1) * model.extent();
    (low + last.min(0), high + last.max(0))
}

#[test]
fn random_nested_types_match_their_typemaps() {
    let mut with_data = 0;
    // Miri takes a thousand times as long.
    let seeds = if cfg!(miri) { 12 } else { 30_000 };
    for seed in 0..seeds {
        let mut rng = Rng(fastrand::Rng::with_seed(seed));
        let depth = rng.range(1, 5) as u32;
        let (ty, model) = random(&mut rng, depth);
        with_data += u32::from(check(seed, &mut rng, &ty, &model));
    }
    assert!(
        with_data > seeds as u32 * 2 / 3,
        "only {with_data} types with data"
    );
}

#[test]
fn every_basic_type_matches_its_typemap() {
    for &basic in Basic::ALL {
        let ty = Datatype::basic(basic);
        assert_eq!(ty.extent() as u64, basic.extent());
        for round in 0..if cfg!(miri) { 1 } else { 4 } {
            check(
                basic.handle(),
                &mut Rng(fastrand::Rng::with_seed(round)),
                &ty,
                &Model::basic(basic),
            );
        }
    }
}

/// Words that lie as an index says come as they would in runs, wherever a fragment begins and ends.
#[test]
fn words_are_those_of_the_runs() {
    let mut rng = Rng(fastrand::Rng::with_seed(7));
    let mut walked = 0;
    let rounds = if cfg!(miri) { 15 } else { 2000 };
    for _ in 0..rounds {
        let basic = [
            Basic::Int,
            Basic::Double,
            Basic::DoubleComplex,
            Basic::Short,
        ][rng.0.usize(..4)];
        let old = Arc::new(Datatype::basic(basic));
        let many = rng.range(1, 40);
        let displacements: Vec<i64> = (0..many).map(|_| rng.range(-60, 60)).collect();
        let lengths: Vec<i64> = (0..many).map(|_| rng.range(0, 3).min(2)).collect();
        let datatype = Datatype::indexed(&lengths, &displacements, &old).unwrap();
        let count = rng.range(1, 3) as u64;
        let mut runs = Cursor::new(datatype.flat(), count);
        let mut expected = Vec::new();
        while let Some((at, bytes)) = runs.next_piece(u64::MAX) {
            expected.extend((0..bytes as i64).map(|byte| at + byte));
        }
        let mut cursor = Cursor::new(datatype.flat(), count);
        let mut found = Vec::new();
        while cursor.remaining() > 0 {
            let most = rng.range(1, 200) as u64;
            assert_eq!(cursor.position(), found.len() as u64);
            if let Some((size, base, offsets)) = cursor.next_words(most) {
                walked += offsets.len();
                for offset in offsets {
                    found.extend((0..size as i64).map(|byte| base + offset + byte));
                }
            } else {
                let run = cursor.next_run(most).unwrap();
                for block in 0..run.count as i64 {
                    let first = run.offset + block * run.stride;
                    found.extend((0..run.block as i64).map(|byte| first + byte));
                }
            }
        }
        assert_eq!(found, expected);
    }
    assert!(walked > 5 * rounds, "{walked} words");
}
