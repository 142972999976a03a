//! `tree/import`: a line of JSON, then a tar stream that the Door reads while it arrives.
//!
//! The stream is never held whole. Pieces go through a short channel to the blocking reader; when the Door is
//! slow the channel is full, the socket is not read, and TCP slows the client down. The end of the stream is a
//! message of its own: when the connection breaks, or the handler is dropped, the reader sees an error
//! and never a clean end.

use std::io::{self, Read};
use std::sync::OnceLock;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::{Buf, Bytes, BytesMut};
use nas_types::id::RequestId;
use nas_types::verb::{TreeImport, TreeImported};
use tokio::sync::mpsc;

use crate::body::{cut, drain, next_piece, parse_json, too_large};
use crate::control::Control;
use crate::error::ApiError;
use crate::handler::{Shared, accept, blocking};
use crate::limits::{IMPORT_LINE_BYTES_MAX, IMPORT_PAUSE_MAX, IMPORT_PIECES_MAX};
use crate::routes::request_id;

/// The media type of a streamed body.
pub(crate) const STREAM_TYPE: &str = "application/octet-stream";

/// A message from the socket to the reader.
pub(crate) enum Piece {
    /// Bytes of the stream.
    Data(Bytes),
    /// The client said that this is all.
    End,
}

/// The blocking end of the channel.
pub(crate) struct StreamReader {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    ended: bool,
}

impl StreamReader {
    pub(crate) fn new(pieces: mpsc::Receiver<Piece>) -> Self {
        Self { pieces, current: Bytes::new(), ended: false }
    }
}

impl Read for StreamReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        while self.current.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Data(bytes)) => self.current = bytes,
                Some(Piece::End) => self.ended = true,
                None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the upload was cut")),
            }
        }
        let len = out.len().min(self.current.len());
        self.current.copy_to_slice(&mut out[..len]);
        Ok(len)
    }
}

/// The verb.
pub(crate) async fn handle_import<C: Control>(State(shared): State<Shared<C>>, request: Request) -> Response {
    let id = request_id(&request);
    match try_import(&shared, request, id).await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => error.respond(id),
    }
}

async fn try_import<C: Control>(shared: &Shared<C>, request: Request, id: RequestId) -> Result<TreeImported, ApiError> {
    let (from, mut body) = accept(request, STREAM_TYPE).await?;
    let outcome = async {
        let (line, rest) = read_line(&mut body).await?;
        let import: TreeImport = parse_json(&line)?;
        let permit = shared.imports.clone().try_acquire_owned().map_err(|_| ApiError::busy())?;
        let shared = shared.clone();
        let (sender, receiver) = mpsc::channel(IMPORT_PIECES_MAX);
        let act = blocking(permit, id, move || {
            let caller = shared.admit(&from, &OnceLock::new())?;
            shared.control.tree_import(&caller, import, &mut StreamReader::new(receiver))
        });
        let (outcome, ()) = tokio::join!(act, forward(&mut body, rest, sender));
        outcome
    }
    .await;
    if outcome.is_err() {
        drain(&mut body).await;
    }
    outcome
}

/// The first line, without its newline, and what came after it.
pub(crate) async fn read_line(body: &mut Body) -> Result<(Bytes, Bytes), ApiError> {
    let mut head = BytesMut::new();
    loop {
        let searched = head.len();
        let piece = tokio::time::timeout(IMPORT_PAUSE_MAX, next_piece(body)).await.map_err(|_| cut())?;
        let Some(piece) = piece else {
            return Err(ApiError::request(
                StatusCode::BAD_REQUEST,
                "bad_json",
                "the body must begin with one line of JSON, end it with a newline, and go on with a tar stream",
            ));
        };
        head.extend_from_slice(&piece.map_err(|_| cut())?);
        match head[searched..].iter().position(|b| *b == b'\n') {
            Some(at) if searched + at <= IMPORT_LINE_BYTES_MAX => {
                let line = head.split_to(searched + at).freeze();
                head.advance(1);
                return Ok((line, head.freeze()));
            }
            None if head.len() <= IMPORT_LINE_BYTES_MAX => {}
            _ => return Err(too_large(IMPORT_LINE_BYTES_MAX)),
        }
    }
}

/// Passes the stream on until it ends, breaks, pauses for too long, or nobody reads any more. Only the
/// first of these sends [`Piece::End`]; the others drop the sender.
async fn forward(body: &mut Body, rest: Bytes, sender: mpsc::Sender<Piece>) {
    if !rest.is_empty() && sender.send(Piece::Data(rest)).await.is_err() {
        return;
    }
    loop {
        let piece = tokio::select! {
            piece = tokio::time::timeout(IMPORT_PAUSE_MAX, next_piece(body)) => piece,
            () = sender.closed() => return,
        };
        let message = match piece {
            Ok(Some(Ok(bytes))) => Piece::Data(bytes),
            Ok(None) => Piece::End,
            Ok(Some(Err(_))) | Err(_) => return,
        };
        let end = matches!(message, Piece::End);
        if sender.send(message).await.is_err() || end {
            return;
        }
    }
}
