-- Large payloads and attachments.
select 1;
