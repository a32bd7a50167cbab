//! The tables as Parquet files, and a store of them that reads in the task that asks, so that what it reads counts as the query's.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bursar::Group;
use bursar_arrow::{ChargedStore, OnRefusal};
use bursar_datafusion::charged_caches;
use bursar_tpch::Tables;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::execution::cache::cache_manager::CacheManagerConfig;
use datafusion::execution::context::SessionContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig};
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tempfile::TempDir;

use crate::output::Failure;

/// Address of the files, for sessions.
const STORE: &str = "tables://tpch";

/// A directory with a file for each table.
pub struct Files {
    directory: TempDir,
    names: Vec<String>,
}

impl Files {
    /// Writes the tables.
    pub async fn write(tables: &Tables) -> Result<Self, Failure> {
        let directory = tempfile::tempdir()?;
        let session = SessionContext::new();
        tables.register(&session)?;
        let mut names = Vec::new();
        for name in tables.names() {
            let path = format!("{}/{name}.parquet", directory.path().display());
            let table = session.table(name).await?;
            let options = DataFrameWriteOptions::new().with_single_file_output(true);
            table.write_parquet(&path, options, None).await?;
            names.push(name.to_owned());
        }
        Ok(Self { directory, names })
    }

    /// Makes a session of a query with these tables. With a group, fetched bytes and cached metadata are charged to it.
    pub async fn session(
        &self,
        config: SessionConfig,
        runtime: RuntimeEnvBuilder,
        charged: Option<&Group>,
    ) -> Result<SessionContext, Failure> {
        let prefix = LocalFileSystem::new_with_prefix(self.directory.path())?;
        let store = Arc::new(InTask(prefix, self.directory.path().to_owned()));
        let runtime = match charged {
            Some(group) => {
                runtime.with_cache_manager(charged_caches(group, CacheManagerConfig::default()))
            }
            None => runtime,
        };
        let runtime = runtime.build_arc()?;
        let url = ObjectStoreUrl::parse(STORE)?;
        match charged {
            Some(group) => {
                let store = ChargedStore::new(store, group, OnRefusal::Fail);
                runtime.register_object_store(url.as_ref(), Arc::new(store))
            }
            None => runtime.register_object_store(url.as_ref(), store),
        };
        let session = SessionContext::new_with_config_rt(config, runtime);
        for name in &self.names {
            let file = format!("{STORE}/{name}.parquet");
            let options = ParquetReadOptions::default();
            session.register_parquet(name, file, options).await?;
        }
        Ok(session)
    }
}

/// `object_store`'s own reads files on threads that belong to no query.
#[derive(Debug)]
struct InTask(LocalFileSystem, std::path::PathBuf);

impl fmt::Display for InTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for InTask {
    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
    ) -> Result<Vec<bytes::Bytes>> {
        let failed = |error: std::io::Error| object_store::Error::Generic {
            store: "in task",
            source: Box::new(error),
        };
        let file = File::open(self.1.join(location.as_ref())).map_err(failed)?;
        let read = ranges.iter().map(|range| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, range.start)?;
            Ok(bytes.into())
        });
        read.collect::<std::io::Result<_>>().map_err(failed)
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.0.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}
