//! Parquet files of tenants: whole or not there, within their memory, with nothing left.
#![cfg(feature = "parquet")]

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bursar::{Freshness, Group, Limits, Memory};
use bursar_arbiter::{Arbiter, Policy};
use bursar_datafusion::{
    ChargedParquet, FairShare, GroupPool, RefusalText, Tenant, TenantEngine, charged_caches,
};
use datafusion::arrow::array::Int64Array;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::cache::cache_manager::CacheManagerConfig;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, UploadPart,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const COUNT: u64 = 300_000;
/// `COUNT` rows of a number, a text that does not compress, and a column with few values: about 10 MiB.
const ROWS: &str = "SELECT value AS id, CAST(value * 982451653 % 1000000007 AS VARCHAR) AS text, value % 50 AS part FROM generate_series(1, 300000)";

struct Scene {
    directory: TempDir,
    memory: Memory,
    group: Group,
    context: SessionContext,
    arbiter: Arbiter,
}

fn scene(max: u64) -> Scene {
    let memory = Memory::builder().build().unwrap();
    let config = SessionConfig::new()
        .with_target_partitions(2)
        .set_bool("datafusion.execution.keep_partition_by_columns", false)
        .set_usize(
            "datafusion.execution.objectstore_writer_buffer_size",
            16 << 10,
        );
    Scene {
        directory: tempfile::tempdir().unwrap(),
        group: memory.root().child("t", Limits::max(max)).unwrap(),
        arbiter: Arbiter::new(&memory, Policy::default()),
        context: SessionContext::new_with_config(config),
        memory,
    }
}

impl Scene {
    fn tenant(&self) -> Tenant {
        let builder = TenantEngine::builder(&self.context, &self.arbiter);
        let engine = builder.allow(SQLOptions::new()).build();
        engine.tenant("t").unwrap()
    }

    async fn run(&self, sql: &str) -> Result<u64> {
        let stream = self
            .tenant()
            .sql(None, sql)
            .await
            .map_err(|error| DataFusionError::External(error.to_string().into()))?;
        let batches = stream.collect().await?;
        let count = batches.first().map(|batch| {
            let column = batch.column(0).as_any();
            let rows = column.downcast_ref::<datafusion::arrow::array::UInt64Array>();
            rows.unwrap().value(0)
        });
        Ok(count.unwrap_or(0))
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    async fn assert_all_is_given_back(&self) {
        self.group.close().unwrap();
        self.group.emptied().await;
        let root = self.memory.root().read(Freshness::Exact).unwrap();
        assert_eq!(root.usage_bytes(), 0);
    }
}

/// Files below a directory, but for those that the store is still writing, or about to remove: it lists none of these.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false if path.to_string_lossy().contains('#') => {}
            false => found.push(path),
        }
    }
    found
}

/// Rows and row groups of all files; each must be whole.
fn read(directory: &Path) -> (i64, usize) {
    let (mut rows, mut row_groups) = (0, 0);
    for path in files(directory) {
        let file = std::fs::File::open(&path).unwrap();
        let reader = SerializedFileReader::new(file)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        rows += reader.metadata().file_metadata().num_rows();
        row_groups += reader.num_row_groups();
        let read = reader.get_row_iter(None).unwrap().map(|row| row.unwrap());
        assert_eq!(
            read.count() as i64,
            reader.metadata().file_metadata().num_rows()
        );
    }
    (rows, row_groups)
}

#[tokio::test]
async fn files_flush_row_groups_rather_than_fail() {
    for (max, what, to) in [
        (64 * MIB, "one file", "one.parquet"),
        (4 * MIB, "one file", "one.parquet"),
        (64 * MIB, "fifty files", "many/"),
        (8 * MIB, "fifty files", "many/"),
    ] {
        let scene = scene(max);
        let partitioned = match what {
            "one file" => "",
            _ => "PARTITIONED BY (part)",
        };
        let path = scene.path(to);
        let sql = format!("COPY ({ROWS}) TO '{path}' STORED AS PARQUET {partitioned}");
        assert_eq!(scene.run(&sql).await.unwrap(), COUNT, "{what}, {max}");
        let (rows, row_groups) = read(scene.directory.path());
        assert_eq!(rows, COUNT as i64);
        let written = files(scene.directory.path()).len();
        assert_eq!(
            row_groups > written,
            max < 64 * MIB,
            "{row_groups} of {written}"
        );
        assert!(scene.group.peak() <= max, "{}", scene.group.peak());
        scene.assert_all_is_given_back().await;
    }
}

#[tokio::test]
async fn inserts_flush_row_groups_rather_than_fail() {
    let scene = scene(6 * MIB);
    let path = scene.path("table/");
    std::fs::create_dir(&path).unwrap();
    let create = format!(
        "CREATE EXTERNAL TABLE rows (id BIGINT, text VARCHAR, part BIGINT) STORED AS PARQUET LOCATION '{path}'"
    );
    scene.context.sql(&create).await.unwrap();
    for _ in 0..2 {
        let rows = scene
            .run(&format!("INSERT INTO rows {ROWS}"))
            .await
            .unwrap();
        assert_eq!(rows, COUNT);
    }
    let (rows, row_groups) = read(scene.directory.path());
    assert_eq!(rows, 2 * COUNT as i64);
    assert!(row_groups > files(scene.directory.path()).len());
    scene.assert_all_is_given_back().await;
}

#[tokio::test]
async fn a_batch_that_never_fits_leaves_no_file() {
    let scene = scene(MIB / 8);
    let alone = "SET datafusion.execution.target_partitions = 1";
    scene.context.sql(alone).await.unwrap();
    let path = scene.path("one.parquet");
    let sql = format!("COPY ({ROWS}) TO '{path}' STORED AS PARQUET");
    let error = scene.run(&sql).await.unwrap_err();
    let refusal = RefusalText::of(&error).unwrap();
    assert!(refusal.message.contains("ParquetSink"), "{refusal:?}");
    assert_eq!(files(scene.directory.path()), Vec::<PathBuf>::new());
    scene.assert_all_is_given_back().await;
}

/// The same rows, sorted: footers say the same as DataFusion's own.
#[tokio::test]
async fn footers_are_those_of_datafusion() {
    let scene = scene(64 * MIB);
    let sql = |name: &str| {
        let path = scene.path(name);
        format!(
            "COPY (SELECT * FROM ({ROWS}) ORDER BY part DESC, id) TO '{path}' STORED AS PARQUET OPTIONS (compression 'snappy')"
        )
    };
    let theirs = sql("theirs.parquet");
    scene
        .context
        .sql(&theirs)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    scene.run(&sql("ours.parquet")).await.unwrap();
    let footer = |name: &str| {
        let file = std::fs::File::open(scene.path(name)).unwrap();
        let metadata = SerializedFileReader::new(file).unwrap().metadata().clone();
        let row_group = metadata.row_group(0);
        let file = metadata.file_metadata();
        format!(
            "{:?} {:?} {:?} {:?} {:?}",
            row_group.sorting_columns(),
            row_group.column(1).compression(),
            file.schema_descr(),
            file.key_value_metadata(),
            file.created_by()
        )
    };
    assert_eq!(footer("ours.parquet"), footer("theirs.parquet"));
    assert!(footer("ours.parquet").contains("descending: true"));
    scene.assert_all_is_given_back().await;
}

#[tokio::test]
async fn the_rule_serves_sessions_without_an_engine() {
    let scene = scene(6 * MIB);
    let pool = GroupPool::builder(scene.group.clone())
        .share(&FairShare::new(&scene.group))
        .build();
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc();
    let state = |rule: bool| {
        let state = SessionStateBuilder::new_with_default_features()
            .with_config(scene.context.copied_config())
            .with_runtime_env(runtime.as_ref().unwrap().clone());
        match rule {
            true => state.with_physical_optimizer_rule(Arc::new(ChargedParquet)),
            false => state,
        }
    };
    let sql = |name: &str| {
        let path = scene.path(name);
        format!("COPY ({ROWS}) TO '{path}' STORED AS PARQUET PARTITIONED BY (part)")
    };
    for (rule, finishes) in [(true, true), (false, false)] {
        let context = SessionContext::new_with_state(state(rule).build());
        let frame = context.sql(&sql(&format!("{rule}/"))).await.unwrap();
        let outcome = frame.collect().await;
        assert_eq!(outcome.is_ok(), finishes, "{outcome:?}");
    }
    let (rows, _) = read(&scene.directory.path().join("true"));
    assert_eq!(rows, COUNT as i64);
    drop(runtime);
    scene.assert_all_is_given_back().await;
}

/// A store that takes so many bytes, and then has no room.
#[derive(Debug)]
struct Full(LocalFileSystem, Arc<AtomicBool>);

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug)]
struct FullUpload(Box<dyn MultipartUpload>, Arc<AtomicBool>);

#[async_trait::async_trait]
impl MultipartUpload for FullUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match self.1.load(Ordering::Relaxed) {
            true => Box::pin(async {
                Err(object_store::Error::Generic {
                    store: "full",
                    source: "no room".into(),
                })
            }),
            false => self.0.put_part(data),
        }
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        self.0.complete().await
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.0.abort().await
    }
}

#[async_trait::async_trait]
impl ObjectStore for Full {
    async fn put_opts(
        &self,
        location: &object_store::path::Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.0.put_opts(location, payload, options).await
    }
    async fn put_multipart_opts(
        &self,
        location: &object_store::path::Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        let upload = self.0.put_multipart_opts(location, options).await?;
        Ok(Box::new(FullUpload(upload, self.1.clone())))
    }
    async fn get_opts(
        &self,
        location: &object_store::path::Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        self.0.get_opts(location, options).await
    }
    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<object_store::path::Path>>,
    ) -> BoxStream<'static, object_store::Result<object_store::path::Path>> {
        self.0.delete_stream(locations)
    }
    fn list(
        &self,
        prefix: Option<&object_store::path::Path>,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.0.list(prefix)
    }
    async fn list_with_delimiter(
        &self,
        prefix: Option<&object_store::path::Path>,
    ) -> object_store::Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }
    async fn copy_opts(
        &self,
        from: &object_store::path::Path,
        to: &object_store::path::Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

/// The disk is full, the client goes away, or a function panics, in the middle of one file or of fifty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_files_are_whole_or_not_there() {
    for end in ["full", "dropped", "panic"] {
        for partitioned in ["", "PARTITIONED BY (part)"] {
            let scene = scene(8 * MIB);
            let is_over = Arc::new(AtomicBool::new(false));
            let reached = Arc::new(tokio::sync::Notify::new());
            let (sets, notifies) = (is_over.clone(), reached.clone());
            // Called for each batch, in order.
            let watch = move |arguments: &[ColumnarValue]| {
                if let ColumnarValue::Array(ids) = &arguments[0] {
                    let ids = ids.as_any().downcast_ref::<Int64Array>().unwrap();
                    if ids.values().contains(&200_000) {
                        assert!(end != "panic", "as planned");
                        sets.store(true, Ordering::Relaxed);
                        notifies.notify_one();
                    }
                }
                Ok(arguments[0].clone())
            };
            let int = datafusion::arrow::datatypes::DataType::Int64;
            let watch = create_udf(
                "watch",
                vec![int.clone()],
                int,
                Volatility::Volatile,
                Arc::new(watch),
            );
            scene.context.register_udf(watch);
            if end == "full" {
                let store = LocalFileSystem::new_with_prefix(scene.directory.path()).unwrap();
                let store = Arc::new(Full(store, is_over.clone()));
                let url = ObjectStoreUrl::parse("full://disk").unwrap();
                scene.context.register_object_store(url.as_ref(), store);
            }
            let to = match end {
                "full" => "full://disk".to_owned(),
                _ => scene.directory.path().display().to_string(),
            };
            let name = if partitioned.is_empty() {
                "one.parquet"
            } else {
                "many/"
            };
            let sql = format!(
                "COPY (SELECT watch(id) AS id, text, part FROM ({ROWS})) TO '{to}/{name}' STORED AS PARQUET {partitioned}"
            );
            let tenant = scene.tenant();
            let run = async move {
                let stream = tenant.sql(None, &sql).await.unwrap();
                stream.collect().await
            };
            match end {
                "dropped" => tokio::select! {
                    done = run => panic!("{done:?}"),
                    () = reached.notified() => {}
                },
                "full" => {
                    let error = run.await.unwrap_err().to_string();
                    assert!(error.contains("no room"), "{error}");
                }
                _ => match tokio::spawn(run).await {
                    Ok(ended) => assert!(ended.is_err(), "{ended:?}"),
                    Err(error) => assert!(error.is_panic()),
                },
            }
            // Its tasks end soon after it.
            scene.assert_all_is_given_back().await;
            let (rows, _) = read(scene.directory.path());
            assert!(rows < COUNT as i64, "{end} {partitioned}: {rows}");
        }
    }
}

/// Caches of files are charged, go when memory is needed, and come again.
#[tokio::test]
async fn caches_of_files_follow_their_group() {
    let scene = scene(64 * MIB);
    let caches = scene.memory.root().child("caches", Limits::none()).unwrap();
    let runtime = RuntimeEnvBuilder::new()
        .with_cache_manager(charged_caches(&caches, CacheManagerConfig::default()))
        .build_arc()
        .unwrap();
    let context =
        SessionContext::new_with_config_rt(scene.context.copied_config(), runtime.clone());
    let path = scene.path("table/");
    let copy = format!("COPY ({ROWS}) TO '{path}' STORED AS PARQUET PARTITIONED BY (part)");
    context.sql(&copy).await.unwrap().collect().await.unwrap();
    let create = format!(
        "CREATE EXTERNAL TABLE rows STORED AS PARQUET PARTITIONED BY (part) LOCATION '{path}'"
    );
    context.sql(&create).await.unwrap();
    let query = async || {
        let frame = context.sql("SELECT sum(id) FROM rows WHERE id > 7").await;
        frame.unwrap().collect().await.unwrap()
    };
    let first = query().await;
    let used = || caches.read(Freshness::Exact).unwrap().usage_bytes();
    let manager = &runtime.cache_manager;
    let entries = || {
        let lists = manager.get_list_files_cache().unwrap();
        let metadata = manager.get_file_metadata_cache();
        let statistics = manager.get_file_statistic_cache().unwrap();
        (metadata.len(), statistics.len(), lists.len())
    };
    assert_eq!(entries().0, 50);
    let full = used();
    assert!(full > 50 * 1000, "{full}");

    // Half of it must go. The query finds the same.
    caches.set_max(full / 2);
    caches.try_charge(1).map(drop).unwrap();
    assert!(used() <= full / 2, "{}", used());
    assert!(entries().0 < 50);
    assert_eq!(query().await, first);
    assert!(used() <= full / 2);

    // Nothing fits: nothing is cached, and the query goes on.
    caches.set_max(0);
    assert_eq!(query().await, first);
    assert_eq!(used(), 0);
    assert_eq!(entries(), (0, 0, 0));

    // All comes again, with the limits of before.
    caches.set_max(u64::MAX);
    assert_eq!(query().await, first);
    assert_eq!(entries().0, 50);
    assert_eq!(manager.get_metadata_cache_limit(), 50 << 20);

    // A runtime of a query has the same caches.
    let of_query = RuntimeEnvBuilder::from_runtime_env(&runtime)
        .build_arc()
        .unwrap();
    assert_eq!(of_query.cache_manager.get_file_metadata_cache().len(), 50);
    drop(of_query);

    // The metadata's own limit.
    manager.get_file_metadata_cache().update_cache_limit(0);
    assert_eq!(manager.get_file_metadata_cache().len(), 0);
    drop((context, runtime));
    assert_eq!(used(), 0);
}
