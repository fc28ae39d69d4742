// Somebody hears when a message becomes a dead letter: a function in the process, an HTTP endpoint outside. Both are
// told beside the flow and can never hurt it: what fails is tried again a few times, told, and let go.
export { Notices, type NoticesOptions } from "./notices.ts";
export type { DeadLetterNotice } from "./dead-letter-notice.ts";
export { readNoticeSettings } from "./options.ts";
export type { NoticeSettings, NotifyOptions, OnDeadLetter, WebhookOptions } from "./options.ts";
