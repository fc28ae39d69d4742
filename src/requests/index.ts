// Request and reply: a command is sent through the outbox with a reply topic. Its handler replies in the transaction of
// its effect. A consumer of the requesting service stores the reply in a table, where the waiting process reads it, no
// matter which process received it. Services that only handle requests do not need this room.
export { forgetReplies } from "./replies.ts";
export { parseReplyNotice, Replies } from "./replies.ts";
export { replyConsumer } from "./replies.ts";
export { Requests, type RequestOptions, type RequestsParts } from "./requests.ts";
