/*
 * roce-burst DESTINATION BYTES [QUEUE-PAIRS [FROM [TO]]]: sends what a RoCE v2 RDMA write of BYTES bytes looks
 * like (UDP source port 65535, MTU 4096, base transport header, no ICRC), one such message per queue pair, their
 * packets interleaved; only the packets FROM (0) to TO - 1, as a sender that repeats or gives up. Prints how many.
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MTU = 4096, FIRST = 0x06, MIDDLE = 0x07, LAST = 0x08, ONLY = 0x0a };	/* RC RDMA write */

int main(int argc, char **argv)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = htons(65535) };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(4791) };
	long bytes = argc > 2 ? atol(argv[2]) : 0, pairs = argc > 3 ? atol(argv[3]) : 1;
	long packets = (bytes + MTU - 1) / MTU, sent = 0;
	long start = argc > 4 ? atol(argv[4]) : 0, end = argc > 5 ? atol(argv[5]) : packets;
	static uint8_t packet[12 + MTU];
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (argc < 3 || bytes <= 0 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
		fprintf(stderr, "roce-burst DESTINATION BYTES [QUEUE-PAIRS [FROM [TO]]]\n");
		return 2;
	}
	if (fd < 0 || bind(fd, (void *)&from, sizeof(from))) {
		perror("roce-burst");
		return 1;
	}
	for (long i = start; i < end; i++) {
		long payload = i < packets - 1 ? MTU : bytes - i * MTU;

		for (long pair = 0; pair < pairs; pair++) {
			uint32_t qpn = htonl((uint32_t)(17 + pair)), psn = htonl((uint32_t)i);

			packet[0] = packets == 1 ? ONLY : i == 0 ? FIRST : i == packets - 1 ? LAST : MIDDLE;
			memcpy(packet + 4, &qpn, 4);
			memcpy(packet + 8, &psn, 4);
			if (sendto(fd, packet, (size_t)(12 + payload), 0, (void *)&to, sizeof(to)) < 0) {
				perror("roce-burst");
				return 1;
			}
			sent++;
		}
	}
	printf("%ld\n", sent);
	return 0;
}
