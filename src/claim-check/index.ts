// Large payloads and attachments travel beside the message: a blob store keeps the bytes, the message a reference to them.
export {};
