//! What goes over the wire beside what `object_store` sends: headers that it does not know, and
//! limits for answers; and what came back, by which failures are told apart.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use headroom_mutex::lock;
use http::header::{AUTHORIZATION, RANGE};
use http::{HeaderName, HeaderValue, Method};
use http_body_util::{BodyExt, Limited};
use object_store::ClientOptions;
use object_store::azure::{AzureAuthorizer, AzureCredential, AzureCredentialProvider};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

/// Bytes of an answer that is no content of an object, at most: a page of 1000 keys of 1024 bytes,
/// each five times as long in XML, fits.
const LONGEST_ANSWER: usize = 16 << 20;

/// Bytes of an answer that says what is wrong, at most.
const LONGEST_COMPLAINT: usize = 64 << 10;

tokio::task_local! {
    /// What the request of this task adds and learns. `object_store` has no other way to hand
    /// either through, and calls the HTTP client within the task.
    pub(super) static EXCHANGE: Arc<Exchange>;
}

/// One request and what came of it.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// Headers of the request that completes an upload.
    headers: Vec<(HeaderName, HeaderValue)>,
    reply: Mutex<Option<Reply>>,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A status, from a host.
    Status(u16, String),
    /// None: what the network said, and of which host.
    Broken(String, String),
}

impl Exchange {
    /// Makes one that adds headers to a completion.
    pub(super) fn new(headers: Vec<(HeaderName, HeaderValue)>) -> Self {
        Self { headers, reply: Mutex::default() }
    }

    /// What came back last.
    pub(super) fn reply(&self) -> Option<Reply> {
        lock(&self.reply).clone()
    }

    /// The status that came back last.
    pub(super) fn status(&self) -> Option<u16> {
        match self.reply() {
            Some(Reply::Status(status, _)) => Some(status),
            _ => None,
        }
    }

    /// The store has done what it was asked.
    pub(super) fn has_succeeded(&self) -> bool {
        self.status().is_some_and(|status| (200..300).contains(&status))
    }

    fn note(&self, reply: Reply) {
        *lock(&self.reply) = Some(reply);
    }
}

/// What signs a request of Azure again that got more headers. It is known only when the store is
/// built, after its connector.
pub(super) type AzureSigner = Arc<OnceLock<(AzureCredentialProvider, String)>>;

/// Makes HTTP clients that do all this.
#[derive(Default)]
pub(super) struct Connector {
    /// Set for Azure.
    pub(super) azure: AzureSigner,
    /// The endpoint is `http://`.
    pub(super) is_clear: bool,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let connector = ReqwestConnector::default();
        let client = match connector.connect(options) {
            // a system without certificates of authorities, of which http:// needs none
            Err(_) if self.is_clear => {
                connector.connect(&options.clone().with_no_system_certificates(true))?
            }
            client => client?,
        };
        let azure = Arc::clone(&self.azure);
        Ok(HttpClient::new(Service { client, azure }))
    }
}

struct Service {
    client: HttpClient,
    azure: AzureSigner,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Service")
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let exchange = EXCHANGE.try_with(Arc::clone).ok();
        let host = request.uri().host().unwrap_or_default().to_owned();
        let is_content = request.headers().contains_key(RANGE);
        if let Some(exchange) = &exchange
            && !exchange.headers.is_empty()
            && completes(&request)
        {
            for (name, value) in &exchange.headers {
                request.headers_mut().insert(name.clone(), value.clone());
            }
            self.sign_again(&mut request).await?;
        }
        match self.client.execute(request).await {
            Ok(answer) => {
                let status = answer.status();
                if let Some(exchange) = &exchange {
                    exchange.note(Reply::Status(status.as_u16(), host));
                }
                if status.is_success() && is_content {
                    return Ok(answer);
                }
                let most = if status.is_success() { LONGEST_ANSWER } else { LONGEST_COMPLAINT };
                let (parts, body) = answer.into_parts();
                let body = Limited::new(body, most).map_err(as_http_error);
                Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
            }
            Err(error) => {
                if let Some(exchange) = &exchange {
                    exchange.note(Reply::Broken(root_cause(&error), host));
                }
                Err(error)
            }
        }
    }
}

impl Service {
    /// The headers that Azure's shared keys sign include those that were added.
    async fn sign_again(&self, request: &mut HttpRequest) -> Result<(), HttpError> {
        let Some((credentials, account)) = self.azure.get() else {
            return Ok(());
        };
        let credential = credentials.get_credential().await.map_err(unsigned)?;
        if matches!(*credential, AzureCredential::AccessKey(_)) {
            request.headers_mut().remove(AUTHORIZATION);
            AzureAuthorizer::new(&credential, account).try_authorize(request).map_err(unsigned)?;
        }
        Ok(())
    }
}

fn unsigned(error: object_store::Error) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}

/// It is the request that completes an upload: of S3 and GCS a POST, of Azure a PUT.
fn completes(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let has = |wanted: &str| query.split('&').any(|part| part.starts_with(wanted));
    match *request.method() {
        Method::POST => has("uploadId="),
        Method::PUT => has("comp=blocklist"),
        _ => false,
    }
}

fn as_http_error(error: Box<dyn StdError + Send + Sync>) -> HttpError {
    match error.downcast::<HttpError>() {
        Ok(error) => *error,
        Err(error) => HttpError::new_boxed(HttpErrorKind::Decode, error),
    }
}

/// What the innermost cause says: outer ones repeat URLs.
pub(super) fn root_cause(error: &(dyn StdError + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
