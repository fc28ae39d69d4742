// Asking and waiting for the answer: a command goes out through the outbox with the name of a reply topic, whoever
// handles it answers in the transaction of its effect, and a consumer of the asking service writes the answer into a
// table where the waiting process finds it, in whichever process it arrived. Nothing here is needed to handle a request.
export { forgetReplies } from "./forget-replies.ts";
export { parseReplyNotice, Replies } from "./replies.ts";
export { replyConsumer } from "./reply-consumer.ts";
export { Requests, type RequestOptions, type RequestsParts } from "./requests.ts";
