//! Small tables, cut by hand.

use super::*;

#[test]
fn a_table_has_as_many_rows_as_it_says() {
    let data = [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 1, 0, 9];
    assert_eq!(rows(&data, 4, "stss"), Ok(vec![[7], [256]]));
    assert_eq!(
        rows(&data, 4, "stts"),
        Err::<Rows<2>, _>(Fault::Small("stts"))
    );
    assert_eq!(
        rows(&data[..15], 4, "stss"),
        Err::<Rows<1>, _>(Fault::Small("stss"))
    );
    assert_eq!(
        rows(&data[..7], 4, "stss"),
        Err::<Rows<1>, _>(Fault::Small("stss"))
    );
    let huge = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(
        rows(&huge, 4, "stsc"),
        Err::<Rows<3>, _>(Fault::Small("stsc"))
    );
}

#[test]
fn a_time_falls_in_a_sample() {
    let stts = [[2, 10], [0, 5], [3, 0], [2, 20]];
    for (time, expected) in [
        (0, Ok((0, 0, 0))),
        (9, Ok((0, 0, 0))),
        (10, Ok((0, 1, 1))),
        (20, Ok((3, 0, 5))),
        (59, Ok((3, 1, 6))),
        (60, Err(7)),
        (u64::MAX, Err(7)),
    ] {
        let expected = expected.map(|(row, rest, sample)| Instant { row, rest, sample });
        assert_eq!(find_time(&stts, time), expected, "{time}");
    }
}

#[test]
fn a_whole_picture_comes_before_a_sample_or_is_it() {
    let stss = [[1], [5], [9]];
    for (sample, before) in [(0, 0), (3, 3), (4, 0), (7, 3), (8, 0), (20, 12)] {
        assert_eq!(before_key_frame(&stss, sample), Ok(before), "{sample}");
    }
    assert_eq!(before_key_frame(&[], 7), Ok(0));
    assert!(before_key_frame(&[[0]], 7).is_err());
}

#[test]
fn tables_by_samples_are_cut_at_both_ends() {
    let mut stss = vec![[1], [5], [9]];
    crop_syncs(&mut stss, 3, Some(8));
    assert_eq!(stss, [[2]]);
    let mut ctts = vec![[2, 70], [3, 80], [4, 90]];
    crop_offsets(&mut ctts, 1, Some(4));
    assert_eq!(ctts, [[1, 70], [2, 80]]);
    crop_offsets(&mut ctts, 3, None);
    assert_eq!(ctts, [[0; 2]; 0]);
}

#[test]
fn chunks_that_cannot_be_are_refused() {
    let out_of = |time| Fault::OutOf {
        time,
        table: "stsc chunks",
    };
    for (rows, samples, fault) in [
        (vec![[0, 3, 1]], (0, None), Fault::Invalid("chunk is zero")),
        (
            vec![[1, 0, 1]],
            (0, None),
            Fault::Invalid("number of samples is zero"),
        ),
        (vec![[1, 3, 1]], (7, None), out_of("start")),
        (vec![[1, 3, 1]], (0, Some(7)), out_of("end")),
        (
            vec![[2, 3, 1], [1, 3, 1]],
            (0, None),
            Fault::Invalid("stsc chunks are unordered"),
        ),
        (
            vec![[9, 3, 1]],
            (0, None),
            Fault::Invalid("stsc chunks are unordered"),
        ),
    ] {
        let cut = Chunks::crop(&mut rows.clone(), 2, samples);
        assert_eq!(cut, Err(fault), "{rows:?}");
    }
}
