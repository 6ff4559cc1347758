//! The server over HTTP, for several clients on this machine.
//!
//! It listens on loopback addresses only. Each request needs the token, and one from a page of a
//! browser is refused, as is one with a foreign `Host` or with two.
//! Connections without the token share a small number of places.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rgpu_protocol::server::{Connection, Connections, accept, http1_builder, named_host};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpStream;

use super::call::ServerState;
use super::server::Server;
use super::stdio::{INVALID_REQUEST, LineError, PARSE_ERROR, read_message};
use super::{McpContext, files};
use crate::loopback;
use rgpu_model::error::Result;

/// Where clients find the server.
const PATH: &str = "/mcp";

/// The most bytes of a request.
const MAX_BODY_BYTES: usize = 1 << 20;

type Service = StreamableHttpService<Server, LocalSessionManager>;

/// Serves clients until the process ends. `told` gets the address, whose port the system may have
/// chosen.
pub async fn serve_http(
    context: McpContext,
    address: SocketAddr,
    token: String,
    told: impl FnOnce(SocketAddr),
) -> Result<()> {
    let again = "take another port: `--http 127.0.0.1:0` lets the system choose one";
    let listener = loopback::listen(address, again).await?;
    let own_address = listener.local_addr().map_err(loopback::failed)?;
    told(own_address);
    files::remove_old(&context);
    let shared = Arc::new(ServerState::new(context));
    let config = StreamableHttpServerConfig::default()
        .with_max_request_body_bytes(MAX_BODY_BYTES)
        .enforce_origin_validation();
    let make = move || Ok(Server::over_http(Arc::clone(&shared)));
    let service = StreamableHttpService::new(make, Arc::default(), config);
    let token: Arc<str> = token.into();
    let connections = Connections::new();
    loop {
        let stream = accept(&listener, &connections).await;
        connections.open(|connection| {
            let (service, token) = (service.clone(), Arc::clone(&token));
            let answers = answer(stream, connection, service, token, own_address);
            tokio::spawn(answers).abort_handle()
        });
    }
}

/// Answers the requests of a connection.
async fn answer(
    stream: TcpStream,
    connection: Connection,
    service: Service,
    token: Arc<str>,
    own_address: SocketAddr,
) {
    let connection = &connection;
    let service = service_fn(|request: Request<Incoming>| {
        let (service, token) = (service.clone(), Arc::clone(&token));
        async move {
            if let Err(refused) = named_host(request.uri(), request.headers()) {
                let text = format!("{refused}\n");
                return Ok::<_, Infallible>(text_response(StatusCode::BAD_REQUEST, text));
            }
            if !loopback::is_own(request.headers(), own_address) {
                let text = "the request names another host, or comes from a page of one\n";
                return Ok(text_response(StatusCode::FORBIDDEN, text.to_owned()));
            }
            let refused = match () {
                () if request.uri().path() != PATH => Some(StatusCode::NOT_FOUND),
                () if !has_token(&request, &token) => Some(StatusCode::UNAUTHORIZED),
                () if !connection.admit() => Some(StatusCode::SERVICE_UNAVAILABLE),
                () => None,
            };
            if let Some(status) = refused {
                return Ok(refusal(status));
            }
            let ends_session = request.method() == Method::DELETE;
            let is_post = request.method() == Method::POST;
            let (head, body) = request.into_parts();
            let Ok(body) = Limited::new(body, MAX_BODY_BYTES).collect().await else {
                return Ok(refusal(StatusCode::PAYLOAD_TOO_LARGE));
            };
            let body = body.to_bytes();
            let wrong = read_message(&body).err().filter(|_| is_post);
            let request = Request::from_parts(head, Full::new(body));
            let mut response = service.handle(request).await;
            // The library has checked where the request comes from.
            if let Some(error) = wrong.filter(|_| response.status() != StatusCode::FORBIDDEN) {
                return Ok(error_response(&error));
            }
            // The session has ended, and nothing is left to do: not "accepted", as the library
            // says.
            if ends_session && response.status() == StatusCode::ACCEPTED {
                *response.status_mut() = StatusCode::NO_CONTENT;
            }
            if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
                return Ok(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE));
            }
            Ok(response)
        }
    });
    // A client that closes its connection is no failure.
    let _ = http1_builder().serve_connection(TokioIo::new(stream), service).await;
}

/// The answer to a body that is no message.
fn error_response(error: &LineError) -> Response<BoxBody<Bytes, Infallible>> {
    let mut response = Response::new(Full::new(error.response().to_string().into()).boxed());
    // An error that belongs to a request is its answer.
    if matches!(error.code, PARSE_ERROR | INVALID_REQUEST) {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn has_token<B>(request: &Request<B>, token: &str) -> bool {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    loopback::is_secret(given, token)
}

fn refusal(status: StatusCode) -> Response<BoxBody<Bytes, Infallible>> {
    let text = match status {
        StatusCode::UNAUTHORIZED => "the token is missing or wrong: Authorization: Bearer TOKEN\n",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            "the body must be one message of MCP, with Content-Type: application/json\n"
        }
        StatusCode::PAYLOAD_TOO_LARGE => "the body is larger than 1 MiB, or it was cut off\n",
        StatusCode::SERVICE_UNAVAILABLE => "there are too many connections: close some\n",
        _ => "the server is at /mcp\n",
    };
    let mut response = text_response(status, text);
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn text_response(
    status: StatusCode,
    text: impl Into<Bytes>,
) -> Response<BoxBody<Bytes, Infallible>> {
    let mut response = Response::new(Full::new(text.into()).boxed());
    *response.status_mut() = status;
    response
}
