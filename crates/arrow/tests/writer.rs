//! Writers of Parquet in groups: files are whole or unreadable, and no byte stays charged.

mod common;

use std::fs::File;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arrow_array::builder::{Int64Builder, MapBuilder, StringViewBuilder};
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, DictionaryArray, FixedSizeListArray, Int32Array,
    LargeListArray, ListArray, RecordBatch, StringViewArray, StructArray, UInt32Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Field;
use arrow_select::take::take_record_batch;
use bursar::{Freshness, Group};
use bursar_arrow::{
    ChargedWriter, ROW_GROUP_MIN, WriteError, batch_bytes, flush_largest, flushes_early,
};
use bursar_rig::random::Random;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::async_writer::AsyncFileWriter;
use parquet::arrow::{ArrowWriter, AsyncArrowWriter};
use parquet::errors::ParquetError;

use common::{batch, directory, group, usage};

const MAX: u64 = 1 << 20;

/// All rows of a file, read without any of our code, and the number of its row groups.
fn read(file: impl Into<Bytes>) -> Result<(Vec<RecordBatch>, usize), ParquetError> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(file.into())?;
    let groups = reader.metadata().num_row_groups();
    let batches: Result<_, _> = reader.with_batch_size(1 << 20).build()?.collect();
    Ok((batches?, groups))
}

fn is_same(written: &[RecordBatch], read: &[RecordBatch]) -> bool {
    let schema = written[0].schema();
    let whole = |batches| arrow_select::concat::concat_batches(&schema, batches).unwrap();
    whole(written) == whole(read)
}

fn writer<W: Write + Send>(sink: W, group: &Group) -> ChargedWriter<ArrowWriter<W>> {
    let schema = batch(&mut Random::fork(0, 0), 1).schema();
    ChargedWriter::new(ArrowWriter::try_new(sink, schema, None).unwrap(), group)
}

fn batches(seed: u64, count: usize) -> Vec<RecordBatch> {
    let mut random = Random::fork(seed, 0);
    let rows = |random: &mut Random| 1 + random.below(2000) as usize;
    (0..count)
        .map(|_| {
            let rows = rows(&mut random);
            batch(&mut random, rows)
        })
        .collect()
}

#[test]
fn early_flushes_keep_the_file_whole() {
    for seed in 0..2 {
        let group = group(MAX);
        let written = batches(seed, 200);
        let mut file = Vec::new();
        let mut writer = writer(&mut file, &group);
        for batch in &written {
            writer.write(batch).unwrap();
            assert_eq!(usage(&group), writer.buffered(), "seed {seed}");
            assert_eq!(writer.buffered(), writer.inner().memory_size() as u64);
        }
        writer.finish().unwrap();
        let (read, row_groups) = read(file).unwrap();
        assert!(is_same(&written, &read), "seed {seed}");
        assert!(row_groups > 5, "{row_groups} row groups");
        assert!(group.peak() <= MAX);
        assert_eq!(usage(&group), 0);
    }
}

#[test]
fn the_rule() {
    let min = ROW_GROUP_MIN;
    for (buffered, encoded, room, flushes) in [
        (2 * min, min, 2 * min, true),
        (2 * min, min, 2 * min + 1, false),
        (2 * min, min - 1, 0, false),
        (0, 0, 0, false),
        (u64::MAX, u64::MAX, u64::MAX, true),
    ] {
        let shown = format!("{buffered} {encoded} {room}");
        assert_eq!(flushes_early(buffered, encoded, room), flushes, "{shown}");
    }
}

/// The limit in the way may be an ancestor's.
#[test]
fn a_full_parent_makes_it_flush() {
    let parent = group(4 * MAX);
    let child = parent.child("writer", bursar::Limits::none()).unwrap();
    let other = parent.try_charge(2 * MAX).unwrap();
    let mut file = Vec::new();
    let mut writer = writer(&mut file, &child);
    let written = batches(7, 60);
    for batch in &written {
        writer.write(batch).unwrap();
        assert!(writer.buffered() < MAX, "{writer:?}");
    }
    assert_eq!(parent.own_events().refused, 0, "the rule comes first");
    assert!(!writer.inner().flushed_row_groups().is_empty());
    writer.finish().unwrap();
    assert!(is_same(&written, &read(file).unwrap().0));
    drop(other);
    assert_eq!(usage(&parent), 0);
}

/// A row group takes more than its first batch, so that little fits the batch alone.
#[test]
fn encoding_takes_more_than_the_batch() {
    let max = 32 << 10;
    let group = group(max);
    let written = vec![batch(&mut Random::fork(12, 0), 100); 2];
    let mut file = Vec::new();
    let mut writer = writer(&mut file, &group);
    writer.write(&written[0]).unwrap();
    assert_eq!((writer.buffered(), usage(&group)), (0, 0));
    assert_eq!(writer.inner().flushed_row_groups().len(), 1);
    assert!(group.peak() > max, "charged until it is flushed");
    // Now it is known.
    let refused = writer.try_write(&written[1]);
    assert!(matches!(refused, Err(WriteError::Refused(_))));
    group.set_max(2 * MAX);
    writer.try_write(&written[1]).unwrap();
    writer.finish().unwrap();
    assert!(is_same(&written, &read(file).unwrap().0));

    group.set_max(max);
    let mut file = Vec::new();
    let mut writer = self::writer(&mut file, &group);
    writer.try_write(&written[0]).unwrap();
    assert_eq!(usage(&group), writer.inner().memory_size() as u64);
    assert!(usage(&group) > max && group.is_over_max());
    let refused = writer.try_write(&written[1]);
    assert!(matches!(refused, Err(WriteError::Refused(_))));
    drop(writer);
    assert_eq!(usage(&group), 0);
}

/// The bytes of a column, of its rows 10 to 19, and of these after a copy that has nothing else.
fn sizes(column: ArrayRef) -> [u64; 3] {
    let batch = RecordBatch::try_from_iter([("column", column)]).unwrap();
    let slice = batch.slice(10, 10);
    let rows = UInt32Array::from_iter_values(0..10);
    let copy = take_record_batch(&slice, &rows).unwrap();
    [&batch, &slice, &copy].map(batch_bytes)
}

#[test]
fn a_slice_counts_its_own_rows() {
    // Ten values a row, or a text.
    let rows = 0..1000_i64;
    let values = || {
        rows.clone()
            .map(|n| Some((0..10).map(move |m| Some(n * m))))
    };
    let text = |n: i64| format!("{n:>20}");
    let texts = || rows.clone().map(text);
    let view = || Arc::new(StringViewArray::from_iter_values(texts())) as ArrayRef;
    let list = || ListArray::from_iter_primitive::<Int64Type, _, _>(values());
    let mut map = MapBuilder::new(None, StringViewBuilder::new(), Int64Builder::new());
    for n in rows.clone() {
        map.keys().append_value(text(n));
        map.values().append_value(n);
        map.append(true).unwrap();
    }
    let field =
        |name: &str, array: &dyn Array| Arc::new(Field::new(name, array.data_type().clone(), true));
    let fields = StructArray::from(vec![(field("view", &view()), view())]);
    let ends = OffsetBuffer::from_lengths(vec![1; 1000]);
    let views = ListArray::new(field("item", &view()), ends, view(), None);
    let pairs = FixedSizeListArray::new(field("item", &list()), 1, Arc::new(list()), None);
    let bytes = BinaryViewArray::from_iter_values(texts());
    // Each other row is null.
    let nulls = values()
        .zip(rows.clone())
        .map(|(row, n)| row.filter(|_| n % 2 == 0));
    let large = LargeListArray::from_iter_primitive::<Int64Type, _, _>(nulls);
    for (column, whole, ten) in [
        (view(), 1000 * 36, 10 * 36),
        (Arc::new(bytes), 1000 * 36, 10 * 36),
        (Arc::new(list()), 1001 * 4 + 80_000, 11 * 4 + 800),
        (Arc::new(large), 1001 * 8 + 40_000 + 125, 11 * 8 + 400 + 2),
        (Arc::new(map.finish()), 1001 * 4 + 44_000, 11 * 4 + 440),
        (Arc::new(fields), 1000 * 36, 10 * 36),
        (Arc::new(views), 1001 * 4 + 36_000, 11 * 4 + 360),
        (Arc::new(pairs), 1001 * 4 + 80_000, 11 * 4 + 800),
    ] as [(ArrayRef, u64, u64); 8]
    {
        let shown = column.data_type().to_string();
        assert_eq!(sizes(column), [whole, ten, ten], "{shown}");
    }
    // A short text stands in its view, and a null has a bit.
    let short = StringViewArray::from_iter([Some("twelve bytes"), None].repeat(10));
    assert_eq!(
        sizes(Arc::new(short)),
        [20 * 16 + 3, 10 * 16 + 2, 10 * 16 + 2]
    );
    // All values of a dictionary count.
    let keys = Int32Array::from_iter_values(0..1000);
    let dictionary = DictionaryArray::new(keys, view());
    let all = 1000 * 36;
    assert_eq!(
        sizes(Arc::new(dictionary)),
        [4000 + all, 40 + all, 40 + all]
    );
}

/// Texts of views are charged before they are encoded, so that a batch that does not fit is refused.
#[test]
fn views_that_do_not_fit_are_refused() {
    let group = group(MAX);
    let texts = vec!["x".repeat(100 << 10); 20];
    let texts = Arc::new(StringViewArray::from(texts)) as ArrayRef;
    let batch = RecordBatch::try_from_iter([("text", texts)]).unwrap();
    let mut file = Vec::new();
    let writer = ArrowWriter::try_new(&mut file, batch.schema(), None).unwrap();
    let mut writer = ChargedWriter::new(writer, &group);
    let refused = writer.write(&batch);
    assert!(matches!(refused, Err(WriteError::Refused(_))));
    assert_eq!((group.peak(), writer.inner().memory_size()), (0, 0));
}

#[test]
fn a_text_that_many_views_show_counts_once() {
    let text = "x".repeat(100 << 10);
    let mut builder = StringViewBuilder::new().with_deduplicate_strings();
    (0..1000).for_each(|_| builder.append_value(&text));
    let texts = Arc::new(builder.finish()) as ArrayRef;
    let batch = RecordBatch::try_from_iter([("text", texts)]).unwrap();
    let bytes = batch_bytes(&batch);
    assert!((100 << 10..200 << 10).contains(&bytes), "{bytes}");
}

#[test]
fn a_refused_batch_changes_nothing() {
    let group = group(MAX);
    let written = batches(1, 3);
    let mut file = Vec::new();
    let mut writer = writer(&mut file, &group);
    writer.write(&written[0]).unwrap();
    // Others take all: the row group that is there is written, and the batch is refused.
    let rest = group.try_charge(MAX - usage(&group)).unwrap();
    let more = group.charge(MAX);
    for _ in 0..2 {
        let refused = writer.write(&written[1]);
        assert!(
            matches!(refused, Err(WriteError::Refused(_))),
            "{refused:?}"
        );
        assert_eq!(writer.buffered(), 0);
        assert_eq!(writer.inner().flushed_row_groups().len(), 1);
    }
    drop((rest, more));
    writer.write(&written[1]).unwrap();
    writer.write(&written[2]).unwrap();
    writer.finish().unwrap();
    assert!(is_same(&written, &read(file).unwrap().0));
    assert_eq!(usage(&group), 0);
}

#[test]
fn finished_after_a_refusal() {
    let group = group(MAX);
    let written = batches(2, 1);
    let mut file = Vec::new();
    let mut writer = writer(&mut file, &group);
    writer.write(&written[0]).unwrap();
    let rest = group.charge(2 * MAX);
    assert!(writer.write(&batches(3, 1)[0]).is_err());
    writer.finish().unwrap();
    assert!(is_same(&written, &read(file).unwrap().0));
    drop(rest);
    assert_eq!(usage(&group), 0);
}

#[test]
fn a_dropped_writer_leaves_no_whole_file() {
    let group = group(MAX);
    let mut file = Vec::new();
    let mut writer = writer(&mut file, &group);
    for batch in batches(4, 100) {
        writer.write(&batch).unwrap();
    }
    assert!(!writer.inner().flushed_row_groups().is_empty());
    assert!(usage(&group) > 0);
    drop(writer);
    assert!(file.len() > 1000);
    read(file).unwrap_err();
    assert_eq!(usage(&group), 0);
}

/// A disk with room for so many bytes.
struct Disk<'a> {
    file: &'a mut Vec<u8>,
    room: usize,
    panics: bool,
}

impl Write for Disk<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(self.room - self.file.len());
        if fits == 0 && !bytes.is_empty() {
            assert!(!self.panics, "on purpose");
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.extend_from_slice(&bytes[..fits]);
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes of a whole file of the batches of seed 5.
fn length_of_five() -> usize {
    let mut file = Vec::new();
    let group = group(MAX);
    let mut writer = writer(&mut file, &group);
    for batch in batches(5, 60) {
        writer.write(&batch).unwrap();
    }
    writer.finish().unwrap();
    file.len()
}

#[test]
fn full_disks_and_panics_of_the_sink() {
    let length = length_of_five();
    for room in [
        0,
        4,
        1000,
        length / 3,
        length - 1000,
        length - 9,
        length - 1,
    ] {
        for panics in [false, true] {
            let group = group(MAX);
            let mut file = Vec::new();
            let disk = Disk {
                file: &mut file,
                room,
                panics,
            };
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let mut writer = writer(disk, &group);
                let mut failed = false;
                for batch in batches(5, 60) {
                    let outcome = catch_unwind(AssertUnwindSafe(|| writer.write(&batch)));
                    if failed {
                        assert!(matches!(outcome, Ok(Err(WriteError::Broken))));
                    }
                    failed |= !matches!(outcome, Ok(Ok(())));
                }
                let outcome = writer.finish();
                assert_eq!(failed, matches!(outcome, Err(WriteError::Broken)));
                outcome
            }));
            assert!(!matches!(outcome, Ok(Ok(_))), "{room} bytes of {length}");
            assert!(read(file).is_err(), "{room} bytes of {length}");
            assert_eq!(usage(&group), 0);
        }
    }
}

/// Each tenant has a partition; a program with all of them open goes on after refusals by flushing the largest.
#[test]
fn partitions_of_one_group() {
    // Less than the row groups of all of them, and little more than a batch.
    let max = MAX / 2;
    let group = group(max);
    let mut files: Vec<Vec<u8>> = vec![Vec::new(); 200];
    let mut written: Vec<Vec<RecordBatch>> = vec![Vec::new(); files.len()];
    let mut writers: Vec<_> = files.iter_mut().map(|file| writer(file, &group)).collect();
    let mut random = Random::fork(8, 0);
    let mut refused = 0;
    for _ in 0..1000 {
        let partition = random.below(200) as usize;
        let rows = 1 + random.below(400) as usize;
        let batch = batch(&mut random, rows);
        while let Err(error) = writers[partition].try_write(&batch) {
            assert!(matches!(error, WriteError::Refused(_)));
            refused += 1;
            let largest = writers.iter().map(|writer| writer.buffered()).max();
            assert_eq!(Some(flush_largest(&mut writers).unwrap()), largest);
        }
        let buffered: u64 = writers.iter().map(|writer| writer.buffered()).sum();
        assert_eq!(usage(&group), buffered);
        written[partition].push(batch);
    }
    assert!(refused > 0);
    for writer in writers {
        writer.finish().unwrap();
    }
    for (file, written) in files.into_iter().zip(&written) {
        if !written.is_empty() {
            assert!(is_same(written, &read(file).unwrap().0));
        }
    }
    // Above the limit by what the encoder took more, for a batch.
    assert!(group.peak() <= max + MAX / 4, "{}", group.peak());
    assert_eq!(usage(&group), 0);
}

/// A reader that is not ours and not of Rust reads each row.
#[test]
fn files_for_pyarrow_and_duckdb() {
    let path = directory("files_for_python").join("file.parquet");
    let group = group(MAX);
    let mut writer = writer(File::create(&path).unwrap(), &group);
    let (mut rows, mut sum) = (0, 0);
    for batch in batches(6, 100) {
        rows += batch.num_rows() as u64;
        let numbers = batch.column(0).to_data();
        let numbers = numbers.buffers()[0].typed_data::<i64>().iter();
        sum += numbers.map(|&n| i128::from(n)).sum::<i128>();
        writer.write(&batch).unwrap();
    }
    let row_groups = writer.finish().unwrap().num_row_groups();
    assert!(row_groups > 1);
    let path = path.display();
    for (module, program) in [
        (
            "pyarrow.parquet",
            format!(
                "import pyarrow.parquet as p\nf = p.ParquetFile('{path}')\nprint(f.num_row_groups, f.metadata.num_rows, \
                 sum(f.read().column('number').to_pylist()))"
            ),
        ),
        (
            "duckdb",
            format!(
                "import duckdb\nprint({row_groups}, *duckdb.sql(\"select count(text), sum(number) from '{path}'\").fetchall()[0])"
            ),
        ),
    ] {
        let python = |program: &str| Command::new("python3").args(["-c", program]).output();
        let has_it = python(&format!("import {module}")).is_ok_and(|done| done.status.success());
        if !has_it {
            eprintln!("python3 has no {module}: left out");
            continue;
        }
        let done = python(&program).unwrap();
        let shown = String::from_utf8_lossy(&done.stdout);
        let error = String::from_utf8_lossy(&done.stderr);
        assert_eq!(
            shown.trim(),
            format!("{row_groups} {rows} {sum}"),
            "{module}: {error}"
        );
    }
    assert_eq!(usage(&group), 0);
}

/// A sink that takes bytes when it may.
#[derive(Default)]
struct Sink {
    file: Vec<u8>,
    waits: bool,
    fails: bool,
    is_complete: bool,
}

impl AsyncFileWriter for &mut Sink {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), ParquetError>> {
        async move {
            if self.waits {
                std::future::pending::<()>().await;
            }
            if self.fails {
                return Err(io::Error::from(io::ErrorKind::StorageFull).into());
            }
            self.file.extend_from_slice(&bytes);
            Ok(())
        }
        .boxed()
    }

    fn complete(&mut self) -> BoxFuture<'_, Result<(), ParquetError>> {
        self.is_complete = true;
        async { Ok(()) }.boxed()
    }
}

fn async_writer<'a>(
    sink: &'a mut Sink,
    group: &Group,
) -> ChargedWriter<AsyncArrowWriter<&'a mut Sink>> {
    let schema = batch(&mut Random::fork(0, 0), 1).schema();
    let writer = AsyncArrowWriter::try_new(sink, schema, None).unwrap();
    ChargedWriter::new(writer, group)
}

#[tokio::test]
async fn asynchronous_files_are_whole() {
    let group = group(MAX);
    let written = batches(9, 100);
    let mut sink = Sink::default();
    let mut writer = async_writer(&mut sink, &group);
    for batch in &written {
        writer.write(batch).await.unwrap();
        assert_eq!(usage(&group), writer.buffered());
    }
    let rest = group.charge(2 * MAX);
    let refused = writer.write(&written[0]).await;
    assert!(matches!(refused, Err(WriteError::Refused(_))));
    writer.finish().await.unwrap();
    assert!(sink.is_complete);
    let (read, row_groups) = read(sink.file).unwrap();
    assert!(is_same(&written, &read) && row_groups > 5);
    drop(rest);
    assert_eq!(usage(&group), 0);
}

/// A flush that waits for its sink keeps its charge. Dropped, it breaks the file.
#[test]
fn a_dropped_flush_breaks_the_file() {
    let group = group(MAX);
    let mut sink = Sink {
        waits: true,
        ..Sink::default()
    };
    let mut writer = async_writer(&mut sink, &group);
    let batch = &batches(10, 1)[0];
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(writer.write(batch)).poll(&mut context).is_ready());
    let buffered = usage(&group);
    {
        let mut flush = pin!(writer.flush());
        assert!(flush.as_mut().poll(&mut context).is_pending());
        assert_eq!(usage(&group), buffered);
        assert!(buffered > 0);
    }
    let broken = pin!(writer.write(batch)).poll(&mut context);
    assert!(matches!(broken, Poll::Ready(Err(WriteError::Broken))));
    let broken = pin!(writer.finish()).poll(&mut context);
    assert!(matches!(broken, Poll::Ready(Err(WriteError::Broken))));
    assert!(!sink.is_complete);
    read(sink.file).unwrap_err();
    assert_eq!(usage(&group), 0);
}

/// The bytes that encoding took more are charged while the flush waits for its sink.
#[test]
fn a_waiting_flush_is_charged_above_the_limit() {
    let max = 32 << 10;
    let group = group(max);
    let mut sink = Sink {
        waits: true,
        ..Sink::default()
    };
    let mut writer = async_writer(&mut sink, &group);
    let batch = batch(&mut Random::fork(12, 0), 100);
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut write = pin!(writer.write(&batch));
        assert!(write.as_mut().poll(&mut context).is_pending());
        assert!(usage(&group) > max && group.is_over_max());
    }
    drop(writer);
    assert_eq!(usage(&group), 0);
}

#[tokio::test]
async fn a_failed_sink_breaks_the_file() {
    let group = group(MAX);
    let mut sink = Sink {
        fails: true,
        ..Sink::default()
    };
    let mut writer = async_writer(&mut sink, &group);
    writer.write(&batches(11, 1)[0]).await.unwrap();
    assert!(matches!(writer.flush().await, Err(WriteError::Parquet(_))));
    assert!(matches!(writer.flush().await, Err(WriteError::Broken)));
    assert!(matches!(writer.finish().await, Err(WriteError::Broken)));
    assert!(!sink.is_complete);
    assert_eq!(group.read(Freshness::Exact).unwrap().usage_bytes(), 0);
}
