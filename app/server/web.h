/* Files of web/ inside the binary; the table is made by tools/embed. */
#ifndef SERVER_WEB_H
#define SERVER_WEB_H

struct web_file {
    const char *path, *type, *etag; /* path NULL: the end of the table */
    const unsigned char *data, *end;
};
extern const struct web_file web_files[];

#endif
