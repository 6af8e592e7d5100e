//! What a client is told when a request cannot be served: a status and the error object of the
//! OpenAI API, with the field that is wrong and, where there is one, the remedy.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// HTTP status.
    pub status: StatusCode,
    /// Kind of error, such as `invalid_request_error`.
    pub kind: &'static str,
    /// A word that programs may match, such as `context_length_exceeded`.
    pub code: Option<&'static str>,
    /// The field that is wrong.
    pub field: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
    /// Seconds after which another attempt makes sense.
    pub retry_after: Option<u64>,
}

impl Failure {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Failure { status, kind, code: None, field: None, message: message.into(), retry_after: None }
    }

    /// The request says something that cannot be done.
    pub fn invalid(message: impl Into<String>) -> Self {
        Failure::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A field that would change the answer, and that this server does not know how to honour.
    pub fn unsupported(field: &str, why: &str) -> Self {
        let mut failure = Failure::invalid(format!("`{field}` is not supported: {why}")).field(field);
        failure.code = Some("unsupported_parameter");
        failure
    }

    /// More tokens than the context holds.
    pub fn too_long(length: &str, context: usize) -> Self {
        let mut failure = Failure::invalid(format!(
            "the prompt has {length} and leaves no room in a context of {context} tokens: shorten it, or start \
             the server with a longer --context"
        ));
        failure.code = Some("context_length_exceeded");
        failure
    }

    /// A model that is not served.
    pub fn unknown_model(name: &str, known: &[String]) -> Self {
        let known = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let mut failure = Failure::new(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            format!("the model `{}` is not served here; there are {known}", shorten(name)),
        )
        .field("model");
        failure.code = Some("model_not_found");
        failure
    }

    /// No such address, or not by this method.
    pub fn not_found(what: impl Into<String>) -> Self {
        Failure::new(StatusCode::NOT_FOUND, "invalid_request_error", what)
    }

    /// The key is missing or wrong.
    pub fn unauthorized() -> Self {
        let mut failure = Failure::new(
            StatusCode::UNAUTHORIZED,
            "invalid_request_error",
            "the API key is missing or wrong: send it as `Authorization: Bearer KEY`",
        );
        failure.code = Some("invalid_api_key");
        failure
    }

    /// A page of another site asks, through its reader's browser.
    pub fn foreign_origin() -> Self {
        Failure::new(
            StatusCode::FORBIDDEN,
            "invalid_request_error",
            "requests from web pages of other sites are refused while no API key is set",
        )
    }

    /// The body is larger than allowed.
    pub fn too_large(limit: usize) -> Self {
        Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "invalid_request_error",
            format!("the request body is larger than {limit} bytes"),
        )
    }

    /// The body did not arrive in time.
    pub fn slow_body(seconds: u64) -> Self {
        Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            "timeout_error",
            format!("the request body did not arrive within {seconds} s"),
        )
    }

    /// All slots and all places of the queue are taken.
    pub fn busy() -> Self {
        let mut failure = Failure::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limit_error",
            "all slots are busy and the queue is full: try again a little later",
        );
        failure.code = Some("rate_limit_exceeded");
        failure.retry_after = Some(1);
        failure
    }

    /// The request took longer than the limit.
    pub fn timed_out(seconds: f64) -> Self {
        Failure::new(
            StatusCode::GATEWAY_TIMEOUT,
            "timeout_error",
            format!(
                "the request was not done within {seconds} s, and was given up: ask for fewer tokens, or start the server with a longer --request-timeout"
            ),
        )
    }

    /// The server is about to end.
    pub fn stopping() -> Self {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "the server is stopping")
    }

    /// Something went wrong here.
    pub fn internal(message: impl Into<String>) -> Self {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// Names the field that is wrong.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field.get_or_insert_with(|| field.into());
        self
    }

    /// The error object.
    pub fn body(&self) -> Value {
        json!({"error": {
            "message": self.message, "type": self.kind, "param": self.field, "code": self.code,
        }})
    }
}

/// The start of a text that a client chose, for messages.
pub fn shorten(text: &str) -> String {
    if text.chars().count() <= 80 {
        text.to_owned()
    } else {
        text.chars().take(77).chain("...".chars()).collect()
    }
}

impl From<crate::Error> for Failure {
    fn from(e: crate::Error) -> Self {
        match e {
            crate::Error::Invalid(problem) | crate::Error::Refused(problem) => {
                Failure::invalid(match &problem.remedy {
                    Some(remedy) => format!("{} ({remedy})", problem.what),
                    None => problem.what.clone(),
                })
            }
            other => Failure::internal(other.to_string()),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response =
            (self.status, [(header::CONTENT_TYPE, "application/json")], self.body().to_string())
                .into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::GATEWAY_TIMEOUT {
            // The official clients would otherwise do the same long work again.
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_shape_that_clients_expect() {
        let failure = Failure::unknown_model("x", &["a".into(), "b".into()]);
        assert_eq!(
            failure.body(),
            json!({"error": {"message": "the model `x` is not served here; there are `a`, `b`",
                "type": "invalid_request_error", "param": "model", "code": "model_not_found"}})
        );
        assert_eq!(Failure::busy().into_response().headers()[header::RETRY_AFTER], "1");
        assert_eq!(Failure::timed_out(1.5).into_response().headers()["x-should-retry"], "false");
        let error = crate::Error::invalid("a is wrong").at("request 7").hint("mend a");
        assert_eq!(Failure::from(error).message, "a is wrong (mend a)");
        assert!(shorten(&"x".repeat(1000)).len() == 80);
    }
}
