//! Parquet files of `COPY` and `INSERT`: their row groups are charged, and flushed early when memory is short.
//!
//! DataFusion 55.2 reserves what its writers buffer, and a refusal ends the statement. These writers flush instead. They reserve from the query's
//! pool rather than charge its group: so a grant grows for them, shares and requests to spill reach them, and reports name them.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bursar_arrow::{Opening, batch_bytes};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::config::{ConfigOptions, TableParquetOptions};
use datafusion::common::exec_datafusion_err;
use datafusion::common::runtime::{JoinSet, SpawnedTask};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::file_format::parquet::ParquetSink;
use datafusion::datasource::physical_plan::{FileSink, FileSinkConfig};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{LexOrdering, LexRequirement, expressions::Column};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use object_store::ObjectStore;
use object_store::buffered::BufWriter;
use parquet::arrow::AsyncArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::metadata::{ParquetMetaData, SortingColumn};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};

use crate::engine_version::SINK;

/// Has `COPY` and `INSERT` of Parquet files flush row groups early when memory is short, instead of failing. For sessions without a
/// [`TenantEngine`](crate::TenantEngine), which does it for all of its statements.
///
/// The files of a statement are one consumer, `ParquetSink`, which can spill. If its request is refused, the file with the largest row group writes
/// it, until the request fits. So files have more row groups, and are whole. A statement fails only when a batch does not fit although nothing is
/// buffered; its file is not completed then.
///
/// A file is encoded by one task, different files in parallel. DataFusion's own sink encodes the columns of a file in parallel, so into one file it is
/// faster. Files that are encrypted keep that sink.
///
/// Bytes that are collected for the object store count as well: up to `objectstore_writer_buffer_size` for each open file. Parts that are on their
/// way are counted by a `ChargedStore` of the crate `bursar-arrow`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> datafusion::error::Result<()> {
/// use bursar_datafusion::ChargedParquet;
/// use datafusion::execution::SessionStateBuilder;
/// use datafusion::prelude::SessionContext;
/// use std::sync::Arc;
///
/// let state = SessionStateBuilder::new_with_default_features()
///     .with_physical_optimizer_rule(Arc::new(ChargedParquet))
///     .build();
/// let context = SessionContext::new_with_state(state);
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().display();
/// context.sql(&format!("COPY (SELECT 7 AS id) TO '{path}/ids.parquet'")).await?.collect().await?;
/// # Ok(())
/// # }
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "parquet")))]
#[derive(Clone, Copy, Debug, Default)]
pub struct ChargedParquet;

impl PhysicalOptimizerRule for ChargedParquet {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        charge_files(plan)
    }

    fn name(&self) -> &str {
        "ChargedParquet"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Replaces the sinks of Parquet in a plan.
pub(crate) fn charge_files(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let charged = plan.transform_down(|node| {
        let Some(exec) = node.downcast_ref::<DataSinkExec>() else {
            return Ok(Transformed::no(node));
        };
        let order = exec.sort_order().clone();
        let sink = exec.sink().downcast_ref::<ParquetSink>();
        let Some(sink) = sink.and_then(|sink| ChargedSink::of(sink, order.as_ref())) else {
            return Ok(Transformed::no(node));
        };
        let exec = DataSinkExec::new(exec.input().clone(), Arc::new(sink), order);
        Ok(Transformed::yes(Arc::new(exec) as _))
    })?;
    Ok(charged.data)
}

struct ChargedSink {
    config: FileSinkConfig,
    /// Schema of the files: without columns that are parts of their paths.
    schema: SchemaRef,
    properties: WriterProperties,
    skips_arrow_metadata: bool,
    metrics: ExecutionPlanMetricsSet,
}

impl ChargedSink {
    /// Makes the sink that writes the same files; `None` if it cannot.
    fn of(sink: &ParquetSink, order: Option<&LexRequirement>) -> Option<Self> {
        let mut options: TableParquetOptions = sink.parquet_options().clone();
        if options.crypto.file_encryption.is_some() || options.crypto.factory_id.is_some() {
            return None;
        }
        let config = sink.config().clone();
        let skips_arrow_metadata = options.global.skip_arrow_metadata;
        if !skips_arrow_metadata {
            options.arrow_schema(config.output_schema());
        }
        let schema = datafusion_datasource::write::get_writer_schema(&config);
        let sorted_by = order.and_then(|order| sorted_by(order, config.output_schema(), &schema));
        let properties = WriterPropertiesBuilder::try_from(&options).ok()?;
        Some(Self {
            properties: properties.set_sorting_columns(sorted_by).build(),
            schema,
            config,
            skips_arrow_metadata,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

/// Columns of the files that the rows are sorted by, for the footer; `None` if the order is of something else.
fn sorted_by(
    order: &LexRequirement,
    input: &SchemaRef,
    written: &SchemaRef,
) -> Option<Vec<SortingColumn>> {
    let mut columns = Vec::new();
    for sort in LexOrdering::from(order.clone()).iter() {
        let column = sort.expr.downcast_ref::<Column>()?;
        let name = input.fields().get(column.index())?.name();
        // Not if it is part of the path.
        if let Some((index, _)) = written.column_with_name(name) {
            columns.push(SortingColumn {
                column_idx: i32::try_from(index).ok()?,
                descending: sort.options.descending,
                nulls_first: sort.options.nulls_first,
            });
        }
    }
    (!columns.is_empty()).then_some(columns)
}

/// Files of a statement that are open.
#[derive(Default)]
struct OpenFiles(Mutex<Vec<Arc<OpenFile>>>);

struct OpenFile {
    /// Bytes of its row group as its task last saw them, to find the largest.
    buffered: AtomicUsize,
    /// Locked by a task that holds no other lock then. None once it is finished or broken.
    writer: tokio::sync::Mutex<Option<Writer>>,
}

struct Writer {
    writer: AsyncArrowWriter<BufWriter>,
    reservation: MemoryReservation,
    /// Bytes that are collected for the object store, at most.
    collected_max: usize,
    opening: Opening,
}

impl Writer {
    /// Encodes a batch. Returns the refusal of its reservation, if it was refused; nothing has changed then.
    async fn write(&mut self, batch: &RecordBatch) -> Result<Option<DataFusionError>> {
        let bytes = batch_bytes(batch);
        let opens = self.writer.in_progress_rows() == 0;
        let needed = self.opening.bytes(opens) + bytes;
        if let Err(refused) = self.reservation.try_grow(needed as usize) {
            return Ok(Some(refused));
        }
        self.writer.write(batch).await?;
        let buffered = self.writer.memory_size();
        if opens {
            self.opening.note(bytes, buffered as u64);
        }
        let held = buffered + self.collected();
        if self.reservation.try_resize(held).is_err() {
            // Encoding took more than the batch has, and it is in use.
            self.reservation.resize(held);
            self.flush().await?;
        }
        Ok(None)
    }

    /// Writes the row group.
    async fn flush(&mut self) -> Result<()> {
        self.writer.flush().await?;
        self.reservation.resize(self.collected());
        Ok(())
    }

    fn collected(&self) -> usize {
        self.writer.bytes_written().min(self.collected_max)
    }

    fn buffered(&self) -> usize {
        match self.writer.in_progress_rows() {
            0 => 0,
            _ => self.writer.memory_size(),
        }
    }
}

impl OpenFiles {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<OpenFile>>> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, writer: Writer) -> Arc<OpenFile> {
        let file = Arc::new(OpenFile {
            buffered: AtomicUsize::new(0),
            writer: tokio::sync::Mutex::new(Some(writer)),
        });
        self.lock().push(file.clone());
        file
    }

    /// Writes the largest row group of all. Returns whether there was one.
    async fn flush_largest(&self) -> Result<bool> {
        loop {
            // Relaxed: only to choose. A file whose task has flushed it meanwhile is looked at again under its lock.
            let largest = (self.lock().iter())
                .map(|file| (file.buffered.load(Ordering::Relaxed), file.clone()))
                .max_by_key(|(buffered, _)| *buffered);
            let Some((1.., largest)) = largest else {
                return Ok(false);
            };
            let mut place = largest.writer.lock().await;
            let had = largest.buffered.swap(0, Ordering::Relaxed);
            match &mut *place {
                Some(writer) if writer.buffered() > 0 => {
                    let flushed = writer.flush().await;
                    if flushed.is_err() {
                        // Its task must not complete it.
                        *place = None;
                    }
                    return flushed.map(|_| true);
                }
                // Its task has finished it while this one waited for the lock.
                None if had > 0 => return Ok(true),
                _ => {}
            }
        }
    }

    /// Writes the batches of a file, and its footer.
    async fn write(
        &self,
        file: &Arc<OpenFile>,
        mut batches: tokio::sync::mpsc::Receiver<RecordBatch>,
    ) -> Result<ParquetMetaData> {
        while let Some(batch) = batches.recv().await {
            loop {
                let mut place = file.writer.lock().await;
                let writer = place.as_mut().ok_or_else(broken)?;
                let refused = writer.write(&batch).await?;
                file.buffered.store(writer.buffered(), Ordering::Relaxed);
                drop(place);
                match refused {
                    None => break,
                    Some(refused) => {
                        if !self.flush_largest().await? {
                            return Err(refused);
                        }
                    }
                }
            }
        }
        let mut place = file.writer.lock().await;
        let writer = place.as_mut().ok_or_else(broken)?;
        let written = writer.writer.finish().await?;
        *place = None;
        self.lock().retain(|open| !Arc::ptr_eq(open, file));
        Ok(written)
    }
}

fn broken() -> DataFusionError {
    exec_datafusion_err!("the file cannot be completed: a row group of it was not written")
}

#[async_trait::async_trait]
impl FileSink for ChargedSink {
    fn config(&self) -> &FileSinkConfig {
        &self.config
    }

    async fn spawn_writer_tasks_and_join(
        &self,
        context: &Arc<TaskContext>,
        demux_task: SpawnedTask<Result<()>>,
        mut files: datafusion_datasource::write::demux::DemuxedStreamReceiver,
        store: Arc<dyn ObjectStore>,
    ) -> Result<u64> {
        let rows_written = MetricBuilder::new(&self.metrics).global_counter("rows_written");
        let bytes_written = MetricBuilder::new(&self.metrics).global_counter("bytes_written");
        let options = &context.session_config().options().execution;
        let collected_max = options.objectstore_writer_buffer_size;
        let consumer = MemoryConsumer::new(SINK).with_can_spill(true);
        // One consumer, so one share of the tenant's memory.
        let reservation = consumer.register(context.memory_pool());
        let open_files = Arc::new(OpenFiles::default());
        let mut tasks = JoinSet::new();
        while let Some((path, batches)) = files.recv().await {
            let sink = BufWriter::with_capacity(store.clone(), path, collected_max);
            let options = ArrowWriterOptions::new()
                .with_properties(self.properties.clone())
                .with_skip_arrow_metadata(self.skips_arrow_metadata);
            let file = open_files.open(Writer {
                writer: AsyncArrowWriter::try_new_with_options(sink, self.schema.clone(), options)?,
                reservation: reservation.new_empty(),
                collected_max,
                opening: Opening::default(),
            });
            let open_files = open_files.clone();
            tasks.spawn(async move { open_files.write(&file, batches).await });
        }
        while let Some(written) = tasks.join_next().await {
            let written = match written {
                Ok(written) => written?,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(error) => return Err(DataFusionError::ExecutionJoin(Box::new(error))),
            };
            rows_written.add(usize::try_from(written.file_metadata().num_rows()).unwrap_or(0));
            let row_groups = written.row_groups().iter();
            let bytes = row_groups.map(|row_group| row_group.compressed_size());
            bytes_written.add(usize::try_from(bytes.sum::<i64>()).unwrap_or(0));
        }
        let demuxed = demux_task.join_unwind().await;
        demuxed.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
        Ok(rows_written.value() as u64)
    }
}

#[async_trait::async_trait]
impl DataSink for ChargedSink {
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn schema(&self) -> &SchemaRef {
        self.config.output_schema()
    }

    async fn write_all(
        &self,
        data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        FileSink::write_all(self, data, context).await
    }
}

impl fmt::Debug for ChargedSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChargedSink").finish_non_exhaustive()
    }
}

impl DisplayAs for ChargedSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ParquetSink(charged)")
    }
}
