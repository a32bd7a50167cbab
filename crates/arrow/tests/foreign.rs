//! Memory that others made: charged once, to whom imports it, until the last clone goes.

mod common;

use std::fs::File;
use std::io::{Cursor, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::{
    Array, ArrayRef, Int32Array, RecordBatch, RecordBatchReader, StringArray, StructArray,
    UInt8Array, make_array,
};
use arrow_buffer::{Buffer, MemoryPool};
use arrow_data::ArrayData;
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::{FileDecoder, FileReader, StreamReader, read_footer_length};
use arrow_ipc::root_as_footer;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{ArrowError, DataType};
use bursar::ChargeError;
use bursar_arrow::{ArrowPool, Claim, ClaimedReader};
use bursar_rig::random::Random;
use bytes::Bytes;

use common::{batch, directory, group, usage};

const MAX: u64 = 8 << 20;

/// Imports an array that came through the C data interface.
fn import(array: FFI_ArrowArray, schema: &FFI_ArrowSchema) -> Result<ArrayData, ArrowError> {
    // SAFETY: Arrow itself exported both, and `array` is moved in.
    unsafe { from_ffi(array, schema) }
}

fn texts() -> ArrayRef {
    let texts = (0..1000).map(|n| (n % 7 > 0).then(|| n.to_string()));
    Arc::new(texts.collect::<StringArray>())
}

#[test]
fn imported_arrays_are_charged_once() {
    let group = group(MAX);
    let exported = texts();
    let (array, schema) = to_ffi(&exported.to_data()).unwrap();
    let imported = import(array, &schema).unwrap();
    let bytes = imported.try_claim(&group).unwrap();
    assert_eq!(usage(&group), bytes);
    // Offsets, texts and validity.
    assert!((1001 * 4 + 125..16_000).contains(&bytes), "{bytes}");
    let array = make_array(imported);
    assert_eq!(&array, &exported);
    let slice = array.slice(10, 5);
    // Again, by an array that shares the buffers, and by a pool of the same group.
    assert_eq!(slice.try_claim(&group).unwrap(), bytes);
    array.to_data().claim(&ArrowPool(group.clone()));
    assert_eq!(usage(&group), bytes);
    drop(array);
    assert_eq!(usage(&group), bytes);
    drop(slice);
    assert_eq!(usage(&group), 0);
}

/// A column that is kept keeps the memory of all columns of its import, but only its own charge.
#[test]
fn columns_of_one_import_are_freed_together() {
    struct Memory {
        bytes: [u8; 1000],
        _kept: Arc<()>,
    }
    impl AsRef<[u8]> for Memory {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    let group = group(MAX);
    let kept = Arc::new(());
    let column = || {
        let memory = Memory {
            bytes: [7; 1000],
            _kept: kept.clone(),
        };
        let buffer = Buffer::from(Bytes::from_owner(memory));
        Arc::new(UInt8Array::new(buffer.into(), None)) as ArrayRef
    };
    let both = RecordBatch::try_from_iter([("a", column()), ("b", column())]).unwrap();
    let (array, schema) = to_ffi(&StructArray::from(both).to_data()).unwrap();
    let imported = StructArray::from(import(array, &schema).unwrap());
    let column = imported.column(0).clone();
    assert_eq!(RecordBatch::from(imported).try_claim(&group).unwrap(), 2000);
    assert_eq!((usage(&group), Arc::strong_count(&kept)), (1000, 3));
    drop(column);
    assert_eq!((usage(&group), Arc::strong_count(&kept)), (0, 1));
}

#[test]
fn another_group_takes_the_charge_over() {
    let (one, two) = (group(MAX), group(MAX));
    let array = texts();
    let bytes = array.try_claim(&one).unwrap();
    array.try_claim(&two).unwrap();
    assert_eq!((usage(&one), usage(&two)), (0, bytes));
    drop(array);
    assert_eq!(usage(&two), 0);
}

#[test]
fn shared_buffers_are_charged_once() {
    let group = group(MAX);
    let buffer = Buffer::from_vec((0..1000).collect::<Vec<i32>>());
    let column = |at: usize| {
        let slice = buffer.slice_with_length(at * 4, 400);
        Arc::new(Int32Array::new(slice.into(), None)) as ArrayRef
    };
    let batch = RecordBatch::try_from_iter([("a", column(0)), ("b", column(7)), ("c", column(0))]);
    let batch = batch.unwrap();
    assert_eq!(batch.try_claim(&group).unwrap(), 4000);
    assert_eq!(usage(&group), 4000);
    drop(batch);
    assert_eq!(usage(&group), 4000, "the buffer is still there");
    drop(buffer);
    assert_eq!(usage(&group), 0);
}

#[test]
fn refused_claims_charge_nothing() {
    let group = group(1000);
    let array = texts();
    let refused = array.try_claim(&group);
    assert!(matches!(refused, Err(ChargeError::LimitReached(_))));
    assert_eq!(usage(&group), 0);
    // A pool of Arrow cannot refuse.
    let pool = ArrowPool(group.clone());
    array.to_data().claim(&pool);
    assert!(pool.available() < 0 && pool.used() > pool.capacity());
    let mut reservation = pool.reserve(0);
    let before = usage(&group);
    for size in [500, 20, 0, 7] {
        reservation.resize(size);
        assert_eq!(
            (reservation.size() as u64, usage(&group)),
            (size as u64, before + size as u64)
        );
    }
    drop((array, reservation));
    assert_eq!(usage(&group), 0);
}

/// Arrow's validation finds the lie, and the claim goes with the array. The import itself trusts lengths, which is why it is `unsafe`.
#[test]
fn importers_that_lie() {
    let group = group(MAX);
    // Texts that begin behind their end.
    let offsets = Buffer::from_vec(vec![0i32, 5, 2, 9]);
    let builder = ArrayData::builder(DataType::Utf8).len(3);
    let builder = builder
        .add_buffer(offsets)
        .add_buffer(Buffer::from(b"123456789"));
    // SAFETY: nobody reads it before it is validated below.
    let lying = unsafe { builder.build_unchecked() };
    let (array, schema) = to_ffi(&lying).unwrap();
    let imported = import(array, &schema).unwrap();
    assert!(imported.try_claim(&group).unwrap() > 0);
    imported.validate_full().unwrap_err();
    drop(imported);
    assert_eq!(usage(&group), 0);
}

fn written() -> Vec<RecordBatch> {
    let mut random = Random::fork(1, 0);
    (0..10).map(|_| batch(&mut random, 1000)).collect()
}

fn stream() -> Vec<u8> {
    let written = written();
    let mut writer = StreamWriter::try_new(Vec::new(), &written[0].schema()).unwrap();
    for batch in &written {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap()
}

fn file() -> Vec<u8> {
    let written = written();
    let mut writer = FileWriter::try_new(Vec::new(), &written[0].schema()).unwrap();
    for batch in &written {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn readers_of_ipc() {
    let stream = stream();
    let stream = StreamReader::try_new(Cursor::new(&stream), None).unwrap();
    let file = FileReader::try_new(Cursor::new(file()), None).unwrap();
    read_all(stream);
    read_all(file);
}

fn read_all(reader: impl RecordBatchReader) {
    let group = group(MAX);
    let mut reader = ClaimedReader::new(reader, &group);
    assert_eq!(reader.schema(), written()[0].schema());
    let mut read = Vec::new();
    let mut bytes = 0;
    for batch in &mut reader {
        read.push(batch.unwrap());
        assert!(usage(&group) > bytes);
        bytes = usage(&group);
    }
    assert_eq!(read, written());
    // Each batch is one buffer, of which its columns are slices.
    let body: usize = read.iter().map(|batch| batch.get_array_memory_size()).sum();
    assert!(
        bytes > 10 * 1000 * 8 && bytes < body as u64,
        "{bytes} {body}"
    );
    read.truncate(1);
    assert!(usage(&group) < bytes / 5);
    drop(read);
    assert_eq!(usage(&group), 0);
}

#[test]
fn refused_batches_of_ipc() {
    let group = group(100_000);
    let stream = stream();
    let reader = StreamReader::try_new(Cursor::new(&stream), None).unwrap();
    let mut kept = Vec::new();
    let refused = ClaimedReader::new(reader, &group)
        .find_map(|batch| batch.map(|batch| kept.push(batch)).err());
    let Some(ArrowError::ExternalError(error)) = refused else {
        panic!("{refused:?}");
    };
    assert!(matches!(
        error.downcast_ref(),
        Some(ChargeError::LimitReached(_))
    ));
    assert!(!kept.is_empty());
    drop(kept);
    assert_eq!(usage(&group), 0);
}

/// Bytes that are cut off or changed: an error, or a panic of Arrow's reader where it checks a length by an assertion.
#[test]
fn ipc_that_lies() {
    let stream = stream();
    let mut random = Random::fork(2, 0);
    let mut failed = 0;
    for _ in 0..300 {
        let mut bytes = stream.clone();
        match random.below(2) {
            0 => bytes.truncate(random.below(stream.len() as u64) as usize),
            _ => {
                // In the header of the first batch, where lengths are. A length of the message itself would make Arrow allocate as much.
                let first = bytes
                    .windows(4)
                    .enumerate()
                    .skip(8)
                    .find(|(_, word)| *word == [0xff; 4]);
                let at = first.unwrap().0 + 40 + random.below(160) as usize;
                bytes[at] ^= 1 << random.below(7);
            }
        }
        let group = group(MAX);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let reader = StreamReader::try_new(Cursor::new(bytes), None)?;
            ClaimedReader::new(reader, &group).collect::<Result<Vec<_>, _>>()
        }));
        failed += usize::from(!matches!(outcome, Ok(Ok(_))));
        drop(outcome);
        assert_eq!(usage(&group), 0);
    }
    assert!(failed > 100, "{failed}");
}

/// A mapped file is one buffer: one charge for all batches, which copy nothing.
#[test]
fn a_mapped_file_is_one_buffer() {
    let path = directory("mapped").join("file.arrow");
    File::create(&path).unwrap().write_all(&file()).unwrap();
    // SAFETY: the file is this test's alone, and nobody writes it.
    let mapped = unsafe { memmap2::Mmap::map(&File::open(&path).unwrap()).unwrap() };
    let group = group(MAX);
    let buffer = Buffer::from(Bytes::from_owner(mapped));
    let length = buffer.len() as u64;
    assert_eq!(buffer.try_claim(&group).unwrap(), length);

    let trailer = buffer.len() - 10;
    let footer = read_footer_length(buffer[trailer..].try_into().unwrap()).unwrap();
    let footer = root_as_footer(&buffer[trailer - footer..trailer]).unwrap();
    let schema = Arc::new(fb_to_schema(footer.schema().unwrap()));
    let decoder = FileDecoder::new(schema, footer.version());
    let blocks = footer.recordBatches().unwrap();
    let batches = blocks.iter().map(|block| {
        let bytes = block.metaDataLength() as usize + block.bodyLength() as usize;
        let bytes = buffer.slice_with_length(block.offset() as usize, bytes);
        decoder.read_record_batch(block, &bytes).unwrap().unwrap()
    });
    let mut batches: Vec<_> = batches.collect();
    assert_eq!(batches, written());
    assert_eq!(usage(&group), length);
    // A reader's pool replaces the charge.
    batches[3].try_claim(&group).unwrap();
    assert_eq!(usage(&group), length);
    drop(buffer);
    batches.truncate(1);
    assert_eq!(usage(&group), length);
    drop(batches);
    assert_eq!(usage(&group), 0);
}
